"""Receives webhooks of a cluster, checks their signatures, and prints what happened. The standard library is enough.

    muster webhooks add https://hooks.example/muster --types 'job.*'     # prints an id and a secret
    MUSTER_WEBHOOK_SECRETS=whsec_… python webhook_receiver.py            # listens on 127.0.0.1:9000

While a secret is replaced, MUSTER_WEBHOOK_SECRETS may hold both, with a space between them.
"""

import base64
import hashlib
import hmac
import json
import os
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOLERANCE_S = 5 * 60  # what is older was recorded by somebody, and is sent again by them
BODY_MAX = 1 << 20  # bytes: no event is larger
SEEN_MAX = 100_000  # ids; an event may come twice, also days apart: keep them in your database


class Forged(Exception):
    """The request is not from the cluster, or not of now."""


def verify(headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now: float) -> str:
    """The id of the event, which the cluster sent as it is here. Raises `Forged`.

    `body` must be the bytes as they came: parsed and written anew they would be others.
    """
    identity, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not identity or not timestamp.isdecimal() or abs(now - int(timestamp)) > TOLERANCE_S:
        raise Forged("webhook-id or webhook-timestamp is missing, or too old")
    content = f"{identity}.{timestamp}.".encode() + body
    given = headers.get("webhook-signature", "").split(" ")
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        right = "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        if any(hmac.compare_digest(right.encode(), one.encode()) for one in given):
            return identity
    raise Forged("no signature is right")


class Receiver(ThreadingHTTPServer):
    """Takes each event once. Answers 2xx when it is taken, so that the cluster does not send it again."""

    def __init__(self, address: tuple[str, int], secrets: Sequence[str]) -> None:
        super().__init__(address, Handler)
        self.secrets = secrets
        self.seen: OrderedDict[str, None] = OrderedDict()

    def take(self, event: dict[str, Any]) -> None:
        """What you do with it. It should be quick: the cluster waits 20 seconds for an answer."""
        print(event["time"], event["type"], event["subject"], flush=True)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_POST(self) -> None:
        """The event is taken, and the answer says so."""
        receiver = self.server
        assert isinstance(receiver, Receiver)
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > BODY_MAX:
            self._answer(413)
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            identity = verify(headers, body, receiver.secrets, time.time())
        except Forged as forged:
            self.log_message("refused: %s", forged)
            self._answer(401)
            return
        if identity not in receiver.seen:  # it was taken before: say so again
            receiver.take(json.loads(body))
            receiver.seen[identity] = None
            while len(receiver.seen) > SEEN_MAX:
                receiver.seen.popitem(last=False)
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


if __name__ == "__main__":
    with Receiver(("127.0.0.1", 9000), os.environ["MUSTER_WEBHOOK_SECRETS"].split()) as receiver:
        receiver.serve_forever()
