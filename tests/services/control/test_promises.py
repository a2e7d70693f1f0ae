"""The promise that keeps two copies of a rank apart, with an agent's own reckoning and the control plane's."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.contact import Contacts
from agent.core.found import Why
from agent.core.ladder import isolated, rungs_s
from agent.records import Records
from events.base import JobId, NodeId
from events.desired import Waiting
from events.fleet import NodeLost
from events.job import JobSpec
from events.node import CheckpointSaved
from events.policy import PolicySet
from projections.cluster.patience import waiting
from projections.cluster.tick import Tick
from runtime.clock import ManualClock
from services.control.silence import Silences
from services.health.silent import decide
from tests.clusters import World

N1, JOB = NodeId("n1"), JobId("job")
STEP_S: Final = 0.5
POLICY: Final = {"suspect_after_s": 4.0, "lost_after_s": 12.0, "lost_most_s": 60.0, "restart_s": 5}
MOST_S: Final = 200.0


class Apart:
    """A run on one node, its agent, and the control planes that judge it, on one time."""

    def __init__(self, folder: Path, grace_s: int) -> None:
        self.clock = ManualClock()
        self.world = World({"n1": 8, "n2": 8})
        self.world.policy(**POLICY)
        self.spec = JobSpec(name="job", command=("x",), gpus=8, stop_grace_s=grace_s)
        self.world.start(self.world.put(self.world.submit("job", 8, stop_grace_s=grace_s), n1=8))
        self.world.round()
        self.records = Records(folder)
        self.contacts = Contacts(self.records, "boot", self.clock, lost_after_s=12.0)
        self.planes = [Silences(0.0), Silences(0.0)]
        self.leads = 0
        self.cut = False
        self.beats_s = 0.0  # when the next heartbeat is due
        self.saved = 0
        self.ended_s: float | None = None  # when the agent's ranks have ended
        self.began_s: float | None = None  # when it began to end them
        self.lost_s: float | None = None

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return self.clock.monotonic()

    def turn(self) -> None:
        """Half a second passes for all of them."""
        self.clock.advance(STEP_S)
        self.world.wait(STEP_S)
        if self.now >= self.beats_s:
            self._beat()
        self._end()
        for number, plane in enumerate(self.planes):
            plane.heard_own(self.now)
            plane.heard(NodeId("n2"), self.world.cluster.nodes[NodeId("n2")].epoch, self.now)
            plane.turn(self.now)
            silent = plane.silent(self.world.cluster, self.now)
            if number == self.leads:
                promised = {node_id: plane.promised(self.world.cluster, node_id) for node_id in silent}
                tick = Tick(at=self.world.at, position=self.world.tick().position, silent=silent, promised=promised)
                events = decide(self.world.cluster, tick)
                self.world.add(*events)
                if any(isinstance(event, NodeLost) for event in events):
                    assert self.lost_s is None
                    self.lost_s = self.now

    def _beat(self) -> None:
        self.beats_s = self.now + self.contacts.every_s(10.0)
        if not self.cut:
            promised_s = self.contacts.patience_s
            for plane in self.planes:
                epoch = self.world.cluster.nodes[N1].epoch
                plane.heard(N1, epoch, self.now, promised_s=promised_s)
            self.contacts.confirmed(self.now, promised_s)

    def _end(self) -> None:
        ended_by_s = self.contacts.ended_by_s
        if self.began_s is None and isolated(self.spec, self.contacts.silent_s, ended_by_s):
            self.began_s = self.now
        if self.began_s is not None and self.ended_s is None:
            kill_s = rungs_s(self.spec, Why.ISOLATED, ended_by_s)[1]
            if self.now - self.began_s >= kill_s:  # its ranks ignore all but that
                self.ended_s = self.now

    def read(self, told: Waiting) -> None:
        """The agent reads what was written, and beats at once."""
        if not self.cut:
            self.contacts.told(told, self.world.cluster.position)
            self.records.keep_as_of(self.world.cluster.position)
            self.beats_s = self.now

    def save(self) -> None:
        """A checkpoint is in the log."""
        run, node = self.world.run(JOB), self.world.cluster.nodes[N1]
        if run is not None and not self.cut:
            self.saved += 1
            ids = {"at": self.world.at, "node_id": N1, "node_epoch": node.epoch, "run_id": run.run_id}
            self.world.add(CheckpointSaved(**ids, number=self.saved))  # type: ignore[arg-type]

    def told(self) -> Waiting:
        """What a dispatcher writes now."""
        return waiting(self.world.cluster, self.world.cluster.nodes[N1])

    def policy(self, least_s: float) -> None:
        """An operator sets another least."""
        self.world.add(PolicySet(at=self.world.at, **POLICY | {"lost_after_s": least_s}))  # type: ignore[arg-type]

    def lead(self, *, anew: bool) -> None:
        """The other one leads: one that stood by, or that has just begun."""
        self.leads = 1 - self.leads
        if anew:
            self.planes[self.leads] = Silences(self.now)
        self.planes[self.leads].restart(self.now)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ranks_have_ended_before_their_node_is_given_up(data: st.DataObject) -> None:
    """Cut off at any moment of a life of checkpoints, late reads, policies and new leaders; its ranks obey nothing but KILL."""
    with TemporaryDirectory() as folder:
        apart = Apart(Path(folder), data.draw(st.sampled_from([0, 1, 5, 30])))
        unread = [apart.told()]
        apart.read(unread[0])
        apart.turn()  # it is heard
        happens: list[Callable[[], None]] = [
            apart.save,
            lambda: unread.append(apart.told()),
            lambda: apart.read(unread[-1]),
            lambda: apart.policy(data.draw(st.sampled_from([9.0, 12.0, 20.0]))),
            lambda: apart.lead(anew=data.draw(st.booleans())),
        ]
        for _ in range(data.draw(st.integers(0, 12))):
            for _ in range(data.draw(st.sampled_from([0, 1, 7, 40]))):
                apart.turn()
            data.draw(st.sampled_from(happens))()
        apart.cut, cut_s = True, apart.now
        again = data.draw(st.integers(0, 60))
        for turn in range(round(MOST_S / STEP_S)):
            if turn == again and data.draw(st.booleans()):
                apart.lead(anew=data.draw(st.booleans()))
            apart.turn()

        assert cut_s < (apart.ended_s or 0.0) < (apart.lost_s or 0.0), "all has ended, and then it is given up"
