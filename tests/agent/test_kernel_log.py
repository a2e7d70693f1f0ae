"""The kernel's log: what is read in it, and that each record is read once. The real one, where it can be written."""

import os
from pathlib import Path

import pytest

from agent.kernel_log import KMSG, DriverError, KernelLog, OomKill, Record, device_of, driver_error, oom_kill, parsed

writable = pytest.mark.skipif(not os.access(KMSG, os.R_OK | os.W_OK), reason="the kernel's log cannot be written here")


def record_of(text: str) -> Record:
    """A record with this text."""
    return Record(1, 1.0, text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            DriverError("0000:3b:00", 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        ),
        ("NVRM: Xid (PCI:0000:DC:00): 13, Graphics Exception", DriverError("0000:dc:00", 13, "Graphics Exception")),
        ("NVRM: Xid (PCI:00000000:3b:00.0): 45,", DriverError("0000:3b:00", 45, "")),
        ("NVRM: GPU at PCI:0000:3b:00: GPU-1", None),
        ("nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 20034, Fatal", None),
    ],
)
def test_an_error_of_the_driver_names_its_device_and_its_number(text: str, error: DriverError | None) -> None:
    """As drivers write it; those of switches are others."""
    assert driver_error(record_of(text)) == error


@pytest.mark.parametrize("pci", ["0000:3b:00", "00000000:3B:00.0", "0000:3b:00.0", "3b:00.0"])
def test_a_device_has_one_name_however_it_is_written(pci: str) -> None:
    """NVML writes eight digits, the driver four, either with or without the function."""
    assert device_of(pci) == "0000:3b:00"


@pytest.mark.parametrize(
    ("text", "kill"),
    [
        ("Out of memory: Killed process 4711 (python) total-vm:8388608kB, anon-rss:1kB", OomKill(pid=4711)),
        ("Memory cgroup out of memory: Killed process 12 (a b) total-vm:1kB", OomKill(pid=12)),
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task_memcg=/a/muster-i-jaa-1,task=py,pid=1",
            OomKill(group="/a/muster-i-jaa-1"),
        ),
        ("Killed process 4711 by somebody", None),
        ("python invoked oom-killer: gfp_mask=0xcc0", None),
    ],
)
def test_a_process_that_was_killed_for_want_of_memory_is_named(text: str, kill: OomKill | None) -> None:
    """By its id, and by its control group."""
    assert oom_kill(record_of(text)) == kill


@pytest.mark.parametrize(
    ("data", "record"),
    [
        (b"6,339,5140900,-;NET: one\n SUBSYSTEM=acpi\n", Record(340, 5.1409, "NET: one")),
        (b"12,0,0,c,more;a;b\n", Record(1, 0.0, "a;b")),
        (b"no record", None),
    ],
)
def test_records_are_as_the_kernel_writes_them(data: bytes, record: Record | None) -> None:
    """A head with more fields than are known, a text with anything in it, details after it."""
    assert parsed(data) == record


@writable
def test_what_comes_after_a_mark_is_read_and_nothing_else() -> None:
    """From where another reader left it, as after a restart."""
    log = KernelLog()
    before = log.after(0)
    mark = before[-1].sequence
    assert log.after(mark) == []

    texts = [f"musterbook test {os.getpid()} {number}" for number in range(3)]
    for text in texts:
        KMSG.write_text(f"{text}\n")  # without its end a record is not whole

    def ours(records: list[Record]) -> list[Record]:
        return [record for record in records if record.text in texts]

    read = ours(log.after(mark))
    assert [record.text for record in read] == texts
    assert ours(log.after(read[-1].sequence)) == []
    assert ours(KernelLog().after(read[0].sequence)) == read[1:]
    assert ours(log.after(mark)) == read, "one that is asked for what it has read begins anew"
    log.close()


def test_a_log_that_cannot_be_read_is_said_to_be_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And everything else goes on."""
    log, other = KernelLog(tmp_path / "none"), KernelLog(tmp_path / "none")
    assert log.after(0) == log.after(0) == other.after(0) == []
    assert capsys.readouterr().out.count("kernel_log_unreadable") == 1
