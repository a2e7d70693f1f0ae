"""The entry of the `muster` command, also as `python -I -m services.cli`: Ctrl-C ends it quietly from the first moment."""

import signal

# Imports take a good part of a second. A Ctrl-C in it ends the process as it ends any other program, not in a traceback.
_as_it_was = signal.getsignal(signal.SIGINT)
if _as_it_was is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from services.cli.app import main  # noqa: E402

signal.signal(signal.SIGINT, _as_it_was)

if __name__ == "__main__":
    main()
