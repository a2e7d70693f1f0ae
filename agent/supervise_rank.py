"""Looks after one rank: starts it, outlives the agent, ends what the rank leaves behind, and writes down how it exited.

Run as `python -I -S supervise_rank.py` with two open files: 3, locked for as long as this process lives, is where the
process ids go; 4 holds the plan, fields with a NUL between them. It imports nothing of ours, and little else, because
it is started once a rank: `json`, `re` and `enum` (behind `signal`) would take most of its time. For the rules about
clocks likewise: it has none to be given.
"""

# ruff: noqa: PTH104, PTH208, SIM105, TID251

import _signal  # type: ignore[import-not-found]  # `signal` without its enums
import os
import sys
import time

LOCK_FD = 3
PLAN_FD = 4
PR_SET_CHILD_SUBREAPER = 36
TERM, KILL = 15, 9
LOOK_S = 0.02
CANNOT_START = 127  # as a shell says that there is no such program
NOT_EXECUTABLE = 126


class Plan:
    """What to start, and where its traces go."""

    def __init__(self, fields: list[bytes]) -> None:
        self.exit_file, self.log_file, self.workdir, self.cgroup_procs = fields[:4]
        self.leftover_grace_s = float(fields[4])
        size = int(fields[5])
        self.env = dict(field.split(b"=", 1) for field in fields[6 : 6 + size])
        self.command = fields[6 + size :]


def main() -> None:
    """Returns when the rank and all that it started have ended, and that is recorded."""
    plan = Plan(_read_all(PLAN_FD).split(b"\0"))
    os.set_inheritable(LOCK_FD, False)  # noqa: FBT003 - it takes it by place only
    _adopt_orphans()
    error_end, child_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_rank(plan, child_end)
    os.close(child_end)
    error = _read_all(error_end).decode(errors="replace")  # ends without a byte when the rank has become its program
    if error:
        os.waitpid(pid, 0)
        _record_exit(plan, CANNOT_START, error)
        return
    os.pwrite(LOCK_FD, b'{"supervisor":%d,"rank":%d,"ticks":%d}' % (os.getpid(), pid, _start_ticks(pid)), 0)
    code = _wait(pid)
    _end_leftovers(plan.leftover_grace_s)
    _record_exit(plan, code, "")


def _adopt_orphans() -> None:
    """A daemon that the rank leaves becomes our child, not init's."""
    try:
        import _ctypes  # `ctypes` itself takes longer to import than all else that is done here

        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]  # None: ourselves
        _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    except (ImportError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _become_rank(plan: Plan, error_fd: int) -> None:
    """Never returns: this process is the rank now, or says why not.

    What we could not do goes to `error_fd`: the rank was not started. A folder or program that the job names and that is
    not there goes to the rank's own output, and it exits as a shell would: the job is wrong, and so everywhere.
    """
    doing, jobs_own = "begin a session", False
    try:
        os.setsid()
        if plan.cgroup_procs:
            doing = "enter its control group"
            _write(plan.cgroup_procs, os.O_WRONLY, b"0")
        doing = "open its log"
        log = os.open(plan.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        os.dup2(os.open(b"/dev/null", os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        jobs_own = True
        doing = f"enter its folder {os.fsdecode(plan.workdir)}"
        os.chdir(plan.workdir)
        doing = f"run {os.fsdecode(plan.command[0])!r}"
        _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them, and that would be inherited
            _signal.signal(number, _signal.SIG_DFL)
        os.execvpe(plan.command[0], plan.command, plan.env)
    except OSError as error:
        reason = f"cannot {doing}: {error.strerror}".encode()[:500]
        if jobs_own:
            os.write(2, b"muster: %b\n" % reason)
            os._exit(NOT_EXECUTABLE if isinstance(error, PermissionError) else CANNOT_START)
        os.write(error_fd, reason)
    finally:
        os._exit(CANNOT_START)


def _wait(pid: int) -> int:
    """The exit code of the rank; 128 + n after signal n. Whatever else ends meanwhile is reaped."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end_leftovers(grace_s: float) -> None:
    """Nothing that the rank started lives: asked by TERM first, then killed, again and again until no child is left."""
    number, deadline_s = TERM, time.monotonic() + grace_s
    asked: set[int] = set()
    while _reap():
        if time.monotonic() >= deadline_s:
            number = KILL
        for pid in _descendants():
            if number == KILL or pid not in asked:
                asked.add(pid)
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass  # it ended by itself
        time.sleep(LOOK_S)


def _reap() -> bool:
    """Whether children are left, after those that have ended were taken in."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _descendants() -> list[int]:
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                parents.setdefault(int(_stat(int(name))[1]), []).append(int(name))
            except OSError:
                pass  # it has just ended
    found: list[int] = []
    pending = [os.getpid()]
    while pending:
        children = parents.get(pending.pop(), [])
        found += children
        pending += children
    return found


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/<pid>/stat from the third on: state, parent, …; the command before may hold anything."""
    return _read_all(os.open(f"/proc/{pid}/stat", os.O_RDONLY)).rpartition(b")")[2].split()


def _start_ticks(pid: int) -> int:
    return int(_stat(pid)[19])


def _record_exit(plan: Plan, code: int, error: str) -> None:
    """The exit is on the disk, whole."""
    text = f'{{"code":{code},"ended_s":{time.monotonic():.6f},"message":"{_escaped(error)}"}}'
    partial = plan.exit_file + b".part"
    _write(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, text.encode(), durable=True)
    os.rename(partial, plan.exit_file)


def _escaped(text: str) -> str:
    return "".join(char if char not in '"\\' and char >= " " else f"\\u{ord(char):04x}" for char in text)


def _write(path: bytes, flags: int, data: bytes, *, durable: bool = False) -> None:
    file = os.open(path, flags, 0o640)
    os.write(file, data)
    if durable:
        os.fsync(file)
    os.close(file)


def _read_all(file: int) -> bytes:
    data = b""
    while part := os.read(file, 65536):
        data += part
    os.close(file)
    return data


if __name__ == "__main__":
    try:
        main()
    except FileNotFoundError as error:  # the agent's folder was removed under us: nobody is left to tell
        sys.exit(f"supervise_rank: {error}")
