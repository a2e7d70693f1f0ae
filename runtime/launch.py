"""Started as `python -I -S launch.py PARENT SIGNAL ACCOUNT OVERRIDE -- PROGRAM …`: becomes PROGRAM, bound to its parent.

The kernel sends it SIGNAL when PARENT dies, however that dies. It runs as ACCOUNT ("uid:gid"; "-" for ours), and with
OVERRIDE "1" keeps the one capability of root to pass folders that are closed to others. A script of its own, because
code that runs between fork and exec of a process with threads is not safe. Imports nothing of ours.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522
PARENT_GONE = 70  # exit codes
CANNOT = 71


def main(argv: list[str]) -> None:
    """Never returns: the process is PROGRAM now, or has ended with one of the codes above."""
    parent, death_signal, account, override = argv[:4]
    program = argv[5:]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if account != "-":
            uid, gid = map(int, account.split(":"))
            change_account(libc, uid, gid, override=override == "1")
        # After the change of account, which would clear it.
        checked(libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
        if os.getppid() != int(parent):
            os._exit(PARENT_GONE)  # it died before the line above
        os.execv(program[0], program)
    except OSError as error:
        sys.stderr.write(f"launch: {program[0]}: {error}\n")
        os._exit(CANNOT)


def change_account(libc: ctypes.CDLL, uid: int, gid: int, *, override: bool) -> None:
    """We are `uid` now, in no other group; with `override`, what we become passes closed folders as root does."""
    if override:
        checked(libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl(PR_SET_KEEPCAPS)")
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if override:
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        bit = 1 << CAP_DAC_OVERRIDE  # effective, permitted, inheritable; then the upper halves
        checked(libc.capset(header, (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)), "capset")
        checked(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0), "prctl(PR_CAP_AMBIENT)")


def checked(result: int, call: str) -> None:
    """`result` is that of a call which went well."""
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main(sys.argv[1:])
