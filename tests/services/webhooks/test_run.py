"""The part that sends: each event at least once and under one id, whatever dies in between, and nothing on its own."""

import asyncio
import json
from datetime import timedelta

import structlog.testing

from events.base import START, Position, Recorded, sequence_of
from events.chain import Chain, extended
from events.head import LogFounded
from events.log.memory import MemoryLog
from events.log.port import Roll, Unknown
from projections.tables.rebuild import rebuild
from runtime.fault import Fault
from services.main.parts import first_of, sending
from services.webhooks import deliveries, endpoints, reached
from services.webhooks.deliveries import AT_ONCE_MAX, LEASE_S
from services.webhooks.post import Post
from services.webhooks.run import AGAIN_S, Webhooks
from services.webhooks.schedule import ATTEMPTS_MAX, DELAYS_S
from services.webhooks.wanted import Wanted
from tests.fixtures.waiting import until
from tests.services.webhooks.conftest import founded
from tests.services.webhooks.receiver import Receiver
from tests.services.webhooks.sending import SECRET, Sender, eventually


async def test_what_an_endpoint_wants_is_delivered_once(sender: Sender, receiver: Receiver) -> None:
    """From its creation on, of the teams it names; the bytes are those of the log, signed, under the event's own id."""
    await sender.submit(2)
    await sender.endpoint(receiver.url, Wanted(("musterbook.job.submitted.v1",), teams=("red",)))
    async with sender.running():
        (mine,) = await sender.submit()
        await sender.submit(team="blue")
        (last,) = await sender.submit()
        await sender.settled(2)
    assert sorted(receiver.ids) == sorted([mine, last])
    first = next(one for one in receiver.received if one.id == mine)
    recorded = await sender.log.read(Position(await sender.log.end() - 2))
    assert recorded is not None
    assert first.body == recorded.document
    assert json.loads(first.body)["id"] == first.id
    assert first.signed_by(SECRET)
    assert first.path == "/hook"
    assert first.headers["content-type"] == "application/cloudevents+json"
    async with sender.running():  # a process that starts again sends nothing again
        await sender.submit()
        await sender.settled(3)
    assert len(receiver.received) == 3


async def test_deliveries_go_on_from_chapter_to_chapter(sender: Sender, receiver: Receiver) -> None:
    """While the part runs, and where it starts again between two chapters; each event once, also those of the log itself."""
    wanted = Wanted(("musterbook.job.submitted.v1", "musterbook.log.chapter_opened.v1"))
    await sender.endpoint(receiver.url, wanted)

    async def roll() -> None:
        chain = Chain()
        while stretch := sender.log.stretch(chain.position):
            chain = extended(chain, stretch)
        await sender.log.roll(chain, Roll(log_id="x", at=sender.clock.now()))

    async with sender.running():
        ids = await sender.submit()
        await sender.settled(1)
        await roll()
        ids += await sender.submit()
        await sender.settled(3)
    await roll()
    ids += await sender.submit()
    async with sender.running():
        await sender.settled(5)
    assert sorted(one for one in receiver.ids if "opened" not in one) == sorted(ids)
    assert len(set(receiver.ids)) == len(receiver.ids) == 5


async def test_what_fails_is_tried_again_when_it_is_time(sender: Sender, receiver: Receiver) -> None:
    """Under the same id and with the time of the attempt; then it is delivered."""
    receiver.answers += ["500 Internal Server Error", "302 Found\r\nLocation: http://127.0.0.1:1/", "200 OK"]
    await sender.endpoint(receiver.url)
    async with sender.running():
        (event,) = await sender.submit()
        for attempt, delay_s in enumerate(DELAYS_S[1:3], 1):
            await sender.noted(attempt)
            sender.clock.advance(delay_s * 1.1)
        await sender.settled(1)
    assert receiver.ids == [event] * 3
    times = [int(one.headers["webhook-timestamp"]) for one in receiver.received]
    assert times[0] < times[1] < times[2]
    (delivery,) = await sender.deliveries()
    assert (delivery.attempts, delivery.last_status) == (3, 200)


async def test_a_test_is_tried_once(sender: Sender, receiver: Receiver) -> None:
    """What came back is all that is wanted of it: nothing is sent for days to a receiver that somebody tries out."""
    receiver.answers += ["500 Internal Server Error"]
    await sender.endpoint(receiver.url)
    async with sender.pool.acquire() as conn:
        await deliveries.add_test(conn, "w1", "test-1", document=b"{}", now=sender.clock.now())
    async with sender.running():
        await sender.settled(1, "failed")
        sender.clock.advance(DELAYS_S[1] * 1.1)
        await sender.submit()
        await sender.settled(1)
    (tested,) = [one for one in await sender.deliveries() if one.webhook_id == "test-1"]
    assert (tested.attempts, tested.last_status) == (1, 500)
    assert receiver.ids.count("test-1") == 1


async def test_after_the_last_attempt_it_has_failed(sender: Sender) -> None:
    """Nobody listens, ten times."""
    await sender.endpoint("http://127.0.0.1:1/")
    async with sender.running():
        await sender.submit()
        await sender.noted(1)
        await sender.pool.execute("UPDATE webhooks.delivery SET attempts = $1", ATTEMPTS_MAX - 1)
        sender.clock.advance(DELAYS_S[1] * 1.1)
        await sender.settled(1, "failed")
    (delivery,) = await sender.deliveries()
    assert (delivery.attempts, delivery.last_status) == (ATTEMPTS_MAX, 0)
    assert "connect" in delivery.last_problem.lower()


async def test_an_endpoint_that_is_gone_gets_nothing_more(sender: Sender, receiver: Receiver) -> None:
    """410 disables it, with all that waits for it; others go on."""
    receiver.answers += ["500 Oops", "500 Oops", "410 Gone"]
    await sender.endpoint(receiver.url, Wanted(("musterbook.job.*",), teams=("red",)))
    await sender.endpoint(receiver.url, Wanted(("musterbook.job.*",), teams=("blue",)), name="w2")
    async with sender.running():
        await sender.submit(2)
        await until(lambda: len(receiver.received) == 2)
        await sender.submit()
        await sender.settled(3, "disabled")
        await sender.submit(team="blue")
        await sender.settled(1, name="w2")
    gone = await endpoints.endpoint(sender.pool, "w1")
    assert gone is not None
    assert (gone.enabled, gone.stopped) == (False, "gone")


async def test_an_endpoint_with_too_much_is_left_in_peace(sender: Sender, receiver: Receiver) -> None:
    """What it says in Retry-After holds for all that waits for it."""
    receiver.answers += ["429 Too Many Requests\r\nRetry-After: 100"]
    await sender.endpoint(receiver.url)
    async with sender.running():
        await sender.submit()
        await until(lambda: receiver.received)
        await sender.noted(1)
        await sender.submit(2)
        await sender.settled(3, "waiting")
        sender.clock.advance(99)
        assert await sender.claim() == []
        assert len(receiver.received) == 1
        sender.clock.advance(1)
        await sender.settled(3)


async def test_a_crash_between_sending_and_noting_sends_again_under_the_same_id(
    sender: Sender, receiver: Receiver
) -> None:
    """The receiver has it twice, and knows it by its id; nothing is lost."""
    receiver.open.clear()
    await sender.endpoint(receiver.url)
    async with sender.running():
        (event,) = await sender.submit()
        await until(lambda: receiver.received)
    receiver.open.set()
    async with sender.running():
        await sender.submit()
        await sender.settled(1)
        assert receiver.ids.count(event) == 1  # whoever had it may be alive still
        sender.clock.advance(LEASE_S)
        await sender.settled(2)
    assert receiver.ids.count(event) == 2


async def test_several_processes_send_each_event_once(sender: Sender, receiver: Receiver) -> None:
    """Three at once: none is sent twice, and one endpoint never has more than its number of requests at a time."""
    await sender.endpoint(receiver.url)
    async with sender.running(), sender.running(), sender.running():
        sent = await sender.submit(60)
        await sender.settled(60)
    assert sorted(receiver.ids) == sorted(sent)
    assert receiver.waiting_max <= AT_ONCE_MAX


async def test_one_endpoint_gets_so_many_requests_at_a_time(sender: Sender, receiver: Receiver) -> None:
    """Of all processes together, also while it does not answer."""
    receiver.open.clear()
    await sender.endpoint(receiver.url)
    async with sender.running(), sender.running():
        await sender.submit(20)
        await until(lambda: receiver.waiting == AT_ONCE_MAX)
        await sender.settled(20, "waiting")
        assert await sender.claim() == []
        receiver.open.set()
        await sender.settled(20)
    assert receiver.waiting_max == AT_ONCE_MAX
    assert len(set(receiver.ids)) == len(receiver.ids) == 20


async def test_a_rebuild_of_the_tables_sends_nothing(sender: Sender, receiver: Receiver) -> None:
    """What was sent is not in the log, so nothing that is made anew from it can send it again."""
    await sender.endpoint(receiver.url)
    async with sender.running():
        await sender.submit(3)
        await sender.settled(3)
        await rebuild(sender.log, sender.pool)
        await rebuild(sender.log, sender.pool)
        await sender.submit()
        await sender.settled(4)
    assert len(receiver.received) == 4


async def test_another_log_is_not_sent_from(sender: Sender, receiver: Receiver) -> None:
    """Its positions mean something else: everything stands still, and says why."""
    await sender.endpoint(receiver.url)
    other = await founded(sender.clock, "log-2")
    stranger = Sender(other, sender.pool, sender.clock)
    await stranger.submit(3)
    async with sender.running(other) as task:
        await until(task.done)
        assert first_fault(task).code == "webhooks_of_another_log"
    assert receiver.received == []


async def test_a_log_that_was_cut_is_not_sent_from(sender: Sender, receiver: Receiver) -> None:
    """What comes at those positions now is not what came before."""
    await sender.submit(5)
    await sender.endpoint(receiver.url)
    async with sender.running(await founded(sender.clock, "log-1")) as task:
        await until(task.done)
        assert first_fault(task).code == "webhooks_ahead"
    assert (await reached.reached(sender.pool)).position == 0


async def test_what_waits_is_sent_from_no_other_log(sender: Sender, receiver: Receiver) -> None:
    """Although it has the same id and length: the event that is there has another id."""
    receiver.answers += ["500 Oops"]
    await sender.endpoint(receiver.url)
    async with sender.running():
        await sender.submit()
        await until(lambda: receiver.received)
        await sender.noted(1)
    forged = await founded(sender.clock, "log-1")
    await Sender(forged, sender.pool, sender.clock).submit()
    await sender.pool.execute("UPDATE webhooks.delivery SET webhook_id = 'other'")
    sender.clock.advance(10)
    async with sender.running(forged) as task:
        await until(task.done)
        assert first_fault(task).code == "webhooks_of_another_log"
    assert len(receiver.received) == 1


def first_fault(task: asyncio.Task[None]) -> Fault:
    """Why the part stands still."""
    failed = task.exception()
    assert isinstance(failed, ExceptionGroup)
    fault = first_of(failed)
    assert isinstance(fault, Fault)
    return fault


async def test_while_nobody_wants_anything_the_log_is_not_read(sender: Sender) -> None:
    """An endpoint that comes later gets what comes after it."""
    async with sender.running():
        await sender.submit(3)
        assert (await reached.reached(sender.pool)) == reached.Reached()


async def test_what_stands_still_is_said_and_ends_no_process(sender: Sender, receiver: Receiver) -> None:
    """Other parts of the same process go on."""
    await sender.endpoint(receiver.url)
    other = await founded(sender.clock, "log-2")

    def make() -> Webhooks:
        return Webhooks(other, sender.pool, Post(sender.clock), sender.clock, kept=timedelta(days=1))

    with structlog.testing.capture_logs() as lines:
        task = asyncio.create_task(sending(make))
        await until(lambda: lines)
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})
    assert [(line["event"], line["code"]) for line in lines] == [("webhooks_stand_still", "webhooks_of_another_log")]


async def test_a_database_that_ends_its_sessions_is_waited_for(sender: Sender, receiver: Receiver) -> None:
    """As it does when it restarts: what was being sent is sent again when its time comes, and nothing is lost."""
    await sender.endpoint(receiver.url)
    async with sender.running() as task:
        await sender.submit(5)
        await sender.settled(1)
        await sender.pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        sent = await sender.submit(5)
        sender.clock.advance(LEASE_S)
        await until(lambda: set(sent) <= set(receiver.ids))
        assert not task.done()


class ShyLog(MemoryLog):
    """A log that gives no single record but its first while it is told so: its server is being restarted."""

    shy = False

    async def read(self, position: Position) -> Recorded | None:
        """See `port.Reader`."""
        if self.shy and sequence_of(position) > 1:
            raise Unknown("The log did not give a record.", code="log_away")
        return await super().read(position)


async def test_an_event_that_the_log_does_not_give_is_sent_later(sender: Sender, receiver: Receiver) -> None:
    """However often that happens, it uses up no attempt."""
    log = ShyLog("main", sender.clock.now)
    await log.append([LogFounded(at=sender.clock.now(), log_id="log-1", cell="main")], after=START)
    shy = Sender(log, sender.pool, sender.clock)
    await shy.endpoint(receiver.url)
    await shy.submit()
    log.shy = True
    async with shy.running():
        for _ in range(3):
            await eventually(lambda: put_back(shy), what="an attempt that came to nothing")
            sender.clock.advance(AGAIN_S)
        log.shy = False
        sender.clock.advance(AGAIN_S)
        await shy.settled(1)
    (delivery,) = await shy.deliveries()
    assert delivery.attempts == len(receiver.received) == 1


async def put_back(sender: Sender) -> bool:
    """Whether the only delivery waits for a later time, and no attempt counts."""
    found = await sender.deliveries()
    return [(one.attempts, one.next_try > sender.clock.now(), one.claimed_until) for one in found] == [(0, True, None)]
