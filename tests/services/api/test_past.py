"""The cluster as it was: folded up to a moment, over a real log."""

import asyncio
from datetime import timedelta

import pytest

from events.base import START, JobId, NodeEpoch, Position, RunId, SlotMask
from events.node import EndReason, GpusReleased, ShareEnded
from projections.cluster.state import Cluster
from services.api.moment import Moment
from services.api.past import Past
from services.api.problems import Troubled
from tests.services.api.cell import CLOCK, NODE, TEAM, Cell


def at(position: int) -> Moment:
    """A position of the log."""
    return Moment(str(position), Position(position), None)


def jobs_of(cluster: Cluster) -> dict[str, str]:
    """What the fold says of jobs."""
    return {job.job_id: job.state.value for job in cluster.jobs.values()}


async def test_a_job_is_explained_as_it_was(cell: Cell) -> None:
    """Before it was submitted it is not there; then it waits, runs, and has ended; the answer says as of when."""
    joined = await cell.join()
    answer = await cell.submit("k")
    job_id, submitted = JobId(answer["job_id"]), answer["position"]
    ran = await cell.run(job_id)
    run = {"at": CLOCK.now(), "node_id": NODE, "node_epoch": NodeEpoch(joined - 1), "run_id": RunId(f"{job_id}-1")}
    await cell.log.record([ShareEnded(**run, reason=EndReason.EXITED), GpusReleased(**run, slots=SlotMask(3))])  # type: ignore[arg-type]
    ended = await cell.succeed(job_id)
    path = f"/v1/jobs/{job_id}/why"

    waits = await cell.get(path, at=submitted, min_position=ended)
    assert (waits["source"], waits["state"], waits["code"], waits["position"]) == (
        "log", "queued", "not_evaluated", submitted,
    )  # fmt: skip
    assert waits["team"] == TEAM
    runs = await cell.get(path, at=str(ran))
    assert (runs["state"], runs["message"], runs["note"]) == ("running", "it runs on node-1", "")
    over = await cell.get(path, at=CLOCK.now().isoformat())
    assert (over["source"], over["state"], over["position"] >= ended) == ("log", "succeeded", True)
    assert (await cell.get(path, at=str(submitted)))["position"] == submitted

    for moment, status, told in (
        (str(joined), 404, "there was no job"),
        (str(ended + 1_000), 422, "is not written yet: the log ends at 1:"),
        ("2020-01-01", 422, "is before the first record of the log"),
        ((CLOCK.now() + timedelta(hours=1)).isoformat(), 422, "has not come"),
        ("soon", 422, "is no moment"),
    ):
        response = await cell.http.get(path, params={"at": moment})
        assert (response.status_code, told in response.json()["detail"]) == (status, True), response.text


async def test_one_question_at_a_time_and_each_goes_on_from_the_last(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one is told to come again; one that takes too long is stopped, and what it folded is kept."""
    await cell.join()
    first, last = (await cell.submit("a"))["position"], (await cell.submit("b"))["position"]
    opened = 0

    def open_reader():  # type: ignore[no-untyped-def] # noqa: ANN202 - the cell's own
        nonlocal opened
        opened += 1
        return cell.open_reader()

    past = Past(open_reader)
    both = await asyncio.gather(*(past.look(at(last), jobs_of) for _ in range(2)), return_exceptions=True)
    assert [type(one).__name__ for one in both] == ["dict", "Troubled"]
    assert isinstance(both[1], Troubled)
    assert (both[1].problem.status, both[1].problem.code) == (503, "busy")

    kept = past._cluster
    assert len(await past.look(at(last), jobs_of)) == 2
    assert past._cluster is kept
    assert len(await past.look(at(first), jobs_of)) == 1
    assert past._cluster is not kept

    monkeypatch.setattr("services.api.past.WAIT_S", 0.0)
    with pytest.raises(Troubled) as slow:
        await past.look(at(last), jobs_of)
    assert (slow.value.problem.status, slow.value.problem.code) == (504, "too_long")
    assert "ask again" in slow.value.problem.hint
    assert past._cluster.position > START
    monkeypatch.undo()
    assert len(await past.look(at(last), jobs_of)) == 2
