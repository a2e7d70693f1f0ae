"""`muster credits export`: a whole file or none, and its hash."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

from click.testing import Result
from typer.testing import CliRunner

from services.cli.app import app
from services.cli.failure import ExitCode, Failure
from tests.services.cli.network import Network

BODY = b"BilledCost\r\n0.0\r\n"
MONTH = ("--month", "2026-11", "--format", "focus-csv")


def invoke(url: str, *args: str) -> Result:
    """The command has run."""
    return CliRunner().invoke(app, ["credits", "export", *MONTH, *args, "--api-url", url])


@contextmanager
def sending(pieces: list[bytes], *, whole: bool, closed: bool = True) -> Iterator[str]:
    """A server that sends these pieces, and ends the answer or breaks it off."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # the library's name
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Muster-Position", str((1 << 40) + 27))
            self.send_header("Muster-Closed", "true" if closed else "false")
            self.end_headers()
            for piece in pieces:
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            if whole:
                self.wfile.write(b"0\r\n\r\n")
            self.close_connection = True

        def log_message(self, *_args: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_stdout_has_the_file_and_stderr_its_hash() -> None:
    """As `sha256sum --check` takes it; and whether the month is closed."""
    for closed, told in ((True, "closed, at position 1:27"), (False, "open, and shown up to position 1:27")):
        with sending([BODY[:5], BODY[5:]], whole=True, closed=closed) as url:
            done = invoke(url)
        assert (done.exit_code, done.stdout_bytes) == (0, BODY)
        assert f"2026-11 is {told}" in done.stderr
        assert f"{hashlib.sha256(BODY).hexdigest()}  -\n" in done.stderr


def test_a_file_is_there_once_it_is_whole(tmp_path: Path) -> None:
    """One that was there before stays until then, also when the answer breaks off."""
    out = tmp_path / "november.csv"
    out.write_bytes(b"before")
    with sending([BODY], whole=False) as url:
        done = invoke(url, "--out", str(out))
    assert isinstance(done.exception, Failure)
    assert (done.exception.code, "nothing was written" in str(done.exception)) == (ExitCode.UNREACHABLE, True)
    assert out.read_bytes() == b"before"
    with sending([BODY], whole=True) as url:
        done = invoke(url, "--out", str(out))
    assert (done.exit_code, done.stdout_bytes, out.read_bytes()) == (0, b"", BODY)
    assert done.stderr.endswith(f"{hashlib.sha256(BODY).hexdigest()}  {out}\n")
    assert list(tmp_path.iterdir()) == [out]


def test_what_breaks_off_on_stdout_is_said_to_be_no_file() -> None:
    """A script sees it by the exit code."""
    with sending([BODY], whole=False) as url:
        done = invoke(url)
    assert isinstance(done.exception, Failure)
    assert "what is on stdout is not whole" in str(done.exception)
    assert done.exception.code is ExitCode.UNREACHABLE


def test_options_are_asked_for_as_they_are_typed(network: Network) -> None:
    """The API knows what is good; its words are passed on."""
    detail = {"code": "invalid", "detail": "rate: must be a decimal above 0, not '-1'", "hint": ""}
    network.answers.append((422, detail))
    done = invoke(
        network.url, "--currency", "USD", "--rate", "-1", "--account", "red", "--team", "a", "--provider", "X"
    )
    assert isinstance(done.exception, Failure)
    assert "rate: must be a decimal above 0, not '-1' [invalid]" in str(done.exception)
    asked = {name: values[0] for name, values in parse_qs(urlsplit(network.asked[0][0]).query).items()}
    assert asked == {
        "month": "2026-11",
        "format": "focus-csv",
        "currency": "USD",
        "rate": "-1",
        "account": "red",
        "team": "a",
        "provider": "X",
    }


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """With the reason that the system gives."""
    with sending([BODY], whole=True) as url:
        done = invoke(url, "--out", str(tmp_path / "none" / "november.csv"))
    assert isinstance(done.exception, Failure)
    assert "cannot be written: No such file or directory" in str(done.exception)


def test_a_server_that_is_not_there_is_told() -> None:
    """As by every other command."""
    done = invoke("http://127.0.0.1:9")
    assert isinstance(done.exception, Failure)
    assert done.exception.code is ExitCode.UNREACHABLE
