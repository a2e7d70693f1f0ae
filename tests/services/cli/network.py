"""A network that drops, delays and refuses: what stands between a command and the API."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

STOPS_WITHIN_S = 0.02
DROP = -1  # instead of a status: the connection is closed without an answer


class Network(NamedTuple):
    """A server that answers each request with the next of `answers`, the last for ever, and keeps what it was asked."""

    url: str
    answers: list[tuple[int, Any]]
    asked: list[tuple[str, Any]]
    headers: list[dict[str, str]]  # of what it was asked, by their names in lower case
    says: dict[str, str]  # headers of each answer


@contextmanager
def open_network() -> Iterator[Network]:
    """A server in a thread of this process."""
    answers: list[tuple[int, Any]] = []
    asked: list[tuple[str, Any]] = []
    headers: list[dict[str, str]] = []
    says: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            asked.append((self.path, json.loads(self.rfile.read(length)) if length else None))
            headers.append({name.lower(): value for name, value in self.headers.items()})
            status, document = answers.pop(0) if len(answers) > 1 else answers[0]
            if status == DROP:
                self.close_connection = True
                return
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            for name, value in (says | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815  # names of the library's

        def log_message(self, *_args: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(STOPS_WITHIN_S,))
    thread.start()
    yield Network(f"http://127.0.0.1:{server.server_port}", answers, asked, headers, says)
    server.shutdown()
    thread.join()
    server.server_close()
