"""Messages between versions: those of the first are read whole, and what a later one adds to any does not hide the rest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

from agent.nats_link import DECODE_ANSWER
from agent.records import StartRecord, StopRecord
from events.ask import Accepted, RefusalCode, Refused, Report
from events.base import NodeId
from events.desired import CAUSES_AT_FIRST, UNTOLD, Order, decode_desired
from events.job import StopCause
from projections.cluster.desired import desired
from runtime.lease import Holder
from services.gate.reports import decoded, problem_of
from services.main.parts import BEATS
from tests.clusters import World

FIRST: Final = Path(__file__).parent.parent / "golden" / "wire" / "first"
FREE: Final = {"env", "labels"}  # names in these are users'
LATER: Final = {"later": {"of": ["a newer version"]}}


def reader(kind: type) -> Callable[[bytes], object]:
    """Reads a message as its reader does that has a plain type for it."""
    return msgspec.json.Decoder(kind).decode


READERS: Final[dict[str, Callable[[bytes], object]]] = {
    "desired": decode_desired,
    "desired-stops": decode_desired,
    "desired-lost": decode_desired,
    "heartbeat": BEATS.decode,
    "report": decoded,
    "accepted": DECODE_ANSWER.decode,
    "refused": DECODE_ANSWER.decode,
    "lease": reader(Holder),
    "start-record": reader(StartRecord),
    "stop-record": reader(StopRecord),
}


def first(name: str) -> bytes:
    """A message of the first version."""
    return (FIRST / f"{name}.json").read_bytes()


def lost(before: Any, after: Any, place: str = "$") -> list[str]:
    """The places of what is in the one and not in the other."""
    if isinstance(before, dict):
        if not isinstance(after, dict):
            return [place]
        return [odd for key in before for odd in lost(before[key], after.get(key), f"{place}.{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            odd for n, pair in enumerate(zip(before, after, strict=True)) for odd in lost(*pair, place=f"{place}[{n}]")
        ]
    return [] if before == after else [place]


def grown(message: Any) -> Any:
    """The message with a field more in every object of it."""
    if isinstance(message, dict):
        return {key: value if key in FREE else grown(value) for key, value in message.items()} | LATER
    return [grown(one) for one in message] if isinstance(message, list) else message


def test_every_message_of_the_first_version_has_its_reader() -> None:
    """A file that nobody reads shows nothing."""
    assert {path.stem for path in FIRST.glob("*.json")} == READERS.keys() | {"desired.schema"}


@pytest.mark.parametrize("name", READERS)
def test_nothing_of_what_the_first_version_wrote_is_lost(name: str) -> None:
    """All that it said is in what is read now: no field was renamed, retyped or given another meaning of its value."""
    read = msgspec.json.encode(READERS[name](first(name)))
    assert lost(json.loads(first(name)), json.loads(read)) == []


@pytest.mark.parametrize("name", READERS)
def test_a_field_that_is_not_known_is_passed_over(name: str) -> None:
    """Whatever part of a message has it."""
    more = json.dumps(grown(json.loads(first(name)))).encode()
    assert READERS[name](more) == READERS[name](first(name))


def test_the_reports_of_the_first_agents_are_taken() -> None:
    """They are whole and within limits by the rules of now."""
    report = decoded(first("report"))
    assert isinstance(report, Report)
    assert problem_of(NodeId("node-1"), report) is None


def test_a_report_of_a_kind_that_is_not_known_is_refused_by_name() -> None:
    """Nothing of its message is taken; its agent tells the others by themselves."""
    later = first("report").replace(b"musterbook.node.share_started.v1", b"musterbook.node.share_dreamt.v1")
    refused = decoded(later)
    assert isinstance(refused, Refused)
    assert (refused.code, "musterbook.node.share_dreamt.v1" in refused.message) == (RefusalCode.INVALID, True)


def test_a_cause_that_is_not_known_stops_a_run_like_any_other() -> None:
    """Its word is handed on to the job; the first agents never see one that they do not know."""
    stops = json.loads(first("desired-stops"))
    stops["shares"][0] |= {"cause": "solar_flare"}
    stops["shares"][1] |= {"reason": "solar_flare"}
    one, two, *others = decode_desired(json.dumps(stops).encode()).shares
    assert (one.order, one.cause, two.order, two.reason) == (Order.STOP, "solar_flare", Order.STOP, "solar_flare")
    assert len({share.cause for share in others} & CAUSES_AT_FIRST) == len(CAUSES_AT_FIRST) - 2


def test_a_spec_that_is_not_known_does_not_hide_the_other_shares() -> None:
    """Its place, slots and order are read; whether its ranks run is not told by it."""
    whole = json.loads(first("desired"))
    share = whole["shares"][0]
    whole["shares"] = [share | {"run_id": "jz-1", "spec": share["spec"] | {"on_lost": "hover"}}, share]
    odd, known = decode_desired(json.dumps(whole).encode()).shares
    assert (known,) == decode_desired(first("desired")).shares
    assert (odd.spec, replace(odd, spec=known.spec, run_id=known.run_id)) == (UNTOLD, known)


@pytest.mark.parametrize("broken", [b"", b"[]", b"{}", b'{"shares":3}', b'{"shares":[4]}', b'{"shares":[{}]}'])
def test_what_is_no_desired_state_is_refused(broken: bytes) -> None:
    """As one error, which the reader expects."""
    with pytest.raises(msgspec.DecodeError):
        decode_desired(broken)


def test_an_order_that_is_not_known_is_not_guessed() -> None:
    """The message is left, and what was obeyed before is obeyed on."""
    with pytest.raises(msgspec.DecodeError, match="hover"):
        decode_desired(first("desired").replace(b'"order":"run"', b'"order":"hover"'))


def test_a_refusal_that_is_not_known_may_be_asked_again() -> None:
    """It is no acceptance, and its words are there."""
    answer = DECODE_ANSWER.decode(first("refused").replace(b'"stale"', b'"moonstruck"'))
    assert answer == Refused(code=RefusalCode.UNKNOWN, message="another agent", hint="h")
    assert isinstance(DECODE_ANSWER.decode(first("accepted")), Accepted)


@pytest.mark.parametrize("cause", StopCause)
def test_the_first_agents_read_what_is_desired_now(cause: StopCause) -> None:
    """Whatever a run is stopped for: by the schema that they came with, and with the word for it where they knew it."""
    world = World({"n1": 2})
    job = world.submit("job", 1)
    world.rounds()
    world.start(job)
    run = world.run(job)
    assert run is not None
    world.cluster.runs[run.run_id] = replace(run, stopping=cause)
    told = msgspec.json.encode(desired(world.cluster, NodeId("n1")))
    jsonschema.Draft202012Validator(json.loads(first("desired.schema"))).validate(json.loads(told))
    (share,) = decode_desired(told).shares
    assert (share.order, share.reason) == (Order.STOP, cause)
    assert share.cause == (cause if cause in CAUSES_AT_FIRST else None)
