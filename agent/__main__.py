"""`python -I -m agent`: the agent of one node, by the settings in its environment."""

import os
import sys

from agent.start import main
from runtime.fault import Fault
from runtime.logging import configure
from runtime.settings import AgentSettings

if __name__ == "__main__":
    settings = AgentSettings()
    configure(level=settings.log_level, process="agent")
    try:
        main(settings, os.environ)
    except* Fault as faults:
        sys.exit("\n".join(f"agent: {fault}" for fault in faults.exceptions))
