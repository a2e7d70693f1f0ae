"""What all tests share: Hypothesis profiles. Fixtures that start servers are in tests/fixtures/."""

import os

import structlog
from hypothesis import HealthCheck, settings

# The same examples each time and no deadline: a slow machine is no failure. MUSTER_HYPOTHESIS=search looks for new ones.
settings.register_profile(
    "repeat", derandomize=True, deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("MUSTER_HYPOTHESIS", "repeat"))

pytest_plugins = ["tests.fixtures.servers"]


def pytest_runtest_teardown() -> None:
    """What was run in the tests' own process may have set up its logging: not for the next test."""
    if structlog.is_configured():
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
