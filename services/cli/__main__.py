"""`python -I -m services.cli`: the muster command, for processes that are started by others."""

from services.cli.app import main

main()
