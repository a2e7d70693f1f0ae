"""What ranks inherit."""

from agent.environment import inherited
from events.base import NodeId


def test_ranks_inherit_what_a_login_shell_has_and_no_more() -> None:
    """No settings or secrets of the agent's, and nothing of its Python."""
    environ = {
        "PATH": "/app/.venv/bin:/usr/bin",
        "VIRTUAL_ENV": "/app/.venv",
        "PYTHONPATH": "/app",
        "HOME": "/people/u",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "MUSTER_NATS_PASSWORD": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }

    kept = {"PATH": "/usr/bin", "HOME": "/people/u", "LANG": "C.UTF-8", "LC_ALL": "C"}
    assert inherited(environ, NodeId("n1")) == kept | {"MUSTER_NODE_ID": "n1"}
