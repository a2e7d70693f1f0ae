"""The HTTP API as the commands call it: where it is, retries under one idempotency key, refusals as `Failure`."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import httpx

from services.cli.failure import ExitCode, Failure, say

CONNECT_S: Final = 5.0
ANSWER_S: Final = 40.0  # longer than the API itself waits for the log
TRIES: Final = 5
PAUSE_S: Final = 0.2  # after the first try, doubled after each
AGAIN: Final = frozenset({429, 502, 503})  # it may help to ask again: with the same key nothing is done twice
BEHIND_MAX_S: Final = 5.0  # that an answer may be old without a word
API: Final = "/v1"

Json = dict[str, Any]


class Server(NamedTuple):
    """Where the API is, and how that is known."""

    url: str
    known_from: str


class SentEvent(NamedTuple):
    """A server-sent event."""

    id: str
    name: str
    data: str


class Client:
    """Calls the API of one server. Every failure of a call is raised as `Failure`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._now = datetime.fromtimestamp(0, UTC)
        self._told_of_age = False
        self._http = httpx.Client(
            base_url=server.url,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            headers={"User-Agent": "muster"},
            follow_redirects=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._http.close()

    @property
    def now(self) -> datetime:
        """The time at the server when it last answered: ages are told by the clock that also dated what they are of."""
        return self._now

    def get(self, path: str, params: Mapping[str, Any] | None = None, *, thing: str = "") -> Json:
        """The document at `path`. `thing` is what messages call it."""
        return self._call("GET", path, thing or path, params=_given(params))

    def post(self, path: str, body: Json, *, thing: str = "", headers: Mapping[str, str] | None = None) -> Json:
        """The answer to `body`. It must be safe to ask twice: a try without an answer is made again."""
        return self._call("POST", path, thing or path, json=body, headers=headers)

    def put(self, path: str, body: Json, *, thing: str, headers: Mapping[str, str], **params: object) -> Json:
        """The answer to a document put at `path`. What holds already is not written again, so asking twice is safe."""
        return self._call("PUT", path, thing, json=body, headers=headers, params=_given(params))

    def patch(self, path: str, body: Json, *, thing: str) -> Json:
        """The answer to what is to be otherwise at `path`. Asking twice changes nothing more."""
        return self._call("PATCH", path, thing, json=body)

    def delete(self, path: str, *, thing: str) -> Json:
        """The answer once what was at `path` is gone."""
        return self._call("DELETE", path, thing)

    def _call(self, method: str, path: str, thing: str, **request: Any) -> Json:
        for again in range(1, TRIES + 1):
            pause_s = PAUSE_S * 2 ** (again - 1)
            try:
                response = self._http.request(method, API + path, **request)
            except httpx.ConnectError as error:
                if again >= 2:  # a server that is being restarted; one that is not there need not be waited for
                    raise self.unreachable(error) from error
            except (httpx.TransportError, httpx.InvalidURL) as error:
                if again == TRIES or isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol):
                    raise self.unreachable(error) from error
            else:
                self._note_time(response)
                self._note_age(response)
                if response.status_code not in AGAIN or again == TRIES:
                    return self._taken(response, thing)
                pause_s = max(pause_s, min(5.0, _retry_after_s(response)))
            time.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    @contextmanager
    def stream(self, path: str, params: Mapping[str, Any] | None, *, thing: str) -> Iterator[Iterator[SentEvent]]:
        """The server-sent events at `path`, as they come. Raises `Failure`; `httpx.TransportError` when it breaks off."""
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)  # the server sends a comment when nothing else
        with self._http.stream("GET", API + path, params=_given(params), timeout=timeout) as response:
            self._note_time(response)
            if response.status_code != httpx.codes.OK:
                response.read()
                self._taken(response, thing)
            yield sent_events(response.iter_lines())

    @contextmanager
    def download(self, path: str, params: Mapping[str, Any] | None, *, thing: str) -> Iterator[httpx.Response]:
        """The file at `path`, to be read in pieces. Raises `Failure`; `httpx.TransportError` when it breaks off."""
        request = self._http.build_request("GET", API + path, params=_given(params))
        try:
            response = self._http.send(request, stream=True)
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        with closing(response):
            self._note_time(response)
            if not response.is_success:
                response.read()
                self._taken(response, thing)
            yield response

    def _note_age(self, response: httpx.Response) -> None:
        """What is shown may lack what has come since; whoever looks at it is told, once."""
        behind_s = float(response.headers.get("muster-behind") or 0)
        if behind_s > BEHIND_MAX_S and not self._told_of_age:
            self._told_of_age = True
            say(f"what follows is {behind_s:.0f} s old: the tables are behind the log; deciding goes on")

    def _note_time(self, response: httpx.Response) -> None:
        if date := response.headers.get("date"):
            self._now = parsedate_to_datetime(date)

    def _taken(self, response: httpx.Response, thing: str) -> Json:
        """The document of a response that went well. Raises `Failure` for any other."""
        try:
            document = response.json()
        except ValueError:
            document = None
        if isinstance(document, dict):
            if response.is_success:
                return document
            if "code" in document:
                raise refusal(response.status_code, document, thing)
        if response.is_server_error:
            raise refusal(response.status_code, {}, thing)
        raise Failure(
            self.server.url,
            f"the answer is not that of a muster API (status {response.status_code})",
            hint=f"another server may listen there; the address is from {self.server.known_from}",
            code=ExitCode.UNREACHABLE,
        )

    def unreachable(self, error: Exception) -> Failure:
        """The failure of a server that does not answer."""
        return Failure(
            self.server.url,
            f"no answer ({str(error) or type(error).__name__}; address from {self.server.known_from})",
            hint="start a cluster with: muster up, or name another address: --api-url, MUSTER_API_URL",
            code=ExitCode.UNREACHABLE,
        )


def refusal(status: int, document: Mapping[str, Any], thing: str) -> Failure:
    """What a response that did not go well means for the command."""
    code = str(document.get("code", ""))
    message = str(document.get("detail") or f"the server answered {status}")
    if job_id := document.get("job_id"):
        message = f"{message} (job {job_id})" if str(job_id) not in message else message
    hint = "muster jobs --all lists the jobs" if code == "not_found" else str(document.get("hint") or "")
    exit_code = {404: ExitCode.NOT_FOUND, 504: ExitCode.TIMEOUT}.get(status, ExitCode.REFUSED)
    if status in {429, 502, 503}:
        exit_code = ExitCode.UNREACHABLE
    return Refusal(thing, message, hint=hint, code=exit_code, named=code)


class Refusal(Failure):
    """The server said no; `named` is the stable code of why."""

    def __init__(self, thing: str, reason: str, *, hint: str, code: ExitCode, named: str) -> None:
        super().__init__(thing, f"{reason} [{named}]" if named else reason, hint=hint, code=code)
        self.reason = reason
        self.named = named


def sent_events(lines: Iterator[str]) -> Iterator[SentEvent]:
    """The events in the lines of a `text/event-stream`. Source: WHATWG HTML, section 9.2.6."""
    identity = name = ""
    data: list[str] = []
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "" if not line:
                if data:
                    yield SentEvent(identity, name, "\n".join(data))
                name, data = "", []
            case "id":
                identity = value
            case "event":
                name = value
            case "data":
                data.append(value)
            case _:
                pass  # a comment, or a field that later servers may send


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _retry_after_s(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdigit() else 0.0
