"""Sizes: the largest events fit into one message of the server."""

import pytest

from events.base import NodeEpoch, NodeId, SlotMask, position_of
from events.codec import EVENT_MAX_BYTES, Codec, Stamp
from events.head import PassedOver, RoundDecided
from events.job import JobPlaced, NodeShare
from events.node import NodeJoined
from tests.events.examples import GPUS, OF_JOB, OF_NODE, RUN, SAID

CODEC = Codec()
STAMP = Stamp("x" * 40, "y" * 40, "z" * 40)
HEADERS_MAX_BYTES = 1024  # of a message in an atomic batch; the server counts them


@pytest.mark.parametrize("slots", [8, 16, 63])
@pytest.mark.parametrize("chapter", [1, 9999])
def test_the_largest_placement_fits_into_one_message(slots: int, chapter: int) -> None:
    """100,000 GPUs on 12,500 nodes with the longest names: one event, so all of the gang or none."""
    epoch = NodeEpoch(position_of(chapter, 2**40 - 1))
    shares = tuple(NodeShare(NodeId(f"n{i:023d}"), epoch, SlotMask(2**slots - 1)) for i in range(12_500))
    event = JobPlaced(**{**OF_JOB, "team": "t" * 24}, run_id=RUN, attempt=1, shares=shares)

    payload = CODEC.encode(event, STAMP)

    assert len(payload) + HEADERS_MAX_BYTES <= EVENT_MAX_BYTES
    assert CODEC.decode(f"job.{'t' * 24}.{event.job_id}", payload)[0] == event


def test_a_decision_record_with_many_lines_stays_small() -> None:
    """A line per shape of waiting jobs: 500 shapes are within 64 KiB."""
    lines = tuple(
        PassedOver(shape=f"{i} GPUs on h100 or a100 or l40s", jobs=100_000, code="nodes_unwell") for i in range(500)
    )
    record = RoundDecided(
        **SAID, epoch=position_of(9, 9), decided_at=position_of(9, 9), events=20_000, passed_over=lines
    )

    assert len(CODEC.encode(record, STAMP)) <= 64 << 10


def test_a_node_with_64_gpus_fits_easily() -> None:
    """The largest nodes there are, with their UUIDs."""
    joined = NodeJoined(
        **OF_NODE, boot_id="b" * 36, instance="i" * 40, gpu_type="h100", gpu_uuids=GPUS * 32, address="a", port_base=1
    )

    assert len(CODEC.encode(joined, STAMP)) <= 8 << 10
