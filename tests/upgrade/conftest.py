"""Cells, agents and tables as the tests of each part have them."""

from tests.agent.conftest import agents, control
from tests.projections.tables.conftest import clock, log, pool
from tests.services.api.conftest import cell
from tests.services.control.conftest import real

__all__ = ["agents", "cell", "clock", "control", "log", "pool", "real"]
