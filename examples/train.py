"""A small data-parallel training: ranks meet over TCP, add up their gradients, save checkpoints, and agree at the end.

Plain Python, no packages. It learns a line from noisy points, each rank from points of its own. Rank 0 listens at
MASTER_ADDR:MASTER_PORT, the others connect; each step all ranks send their gradient to rank 0 and get the sum back, so
every rank makes the same step. A rank that is missing, or goes away, fails the training with a message.

Checkpoints go to MUSTER_CHECKPOINT_DIR, every few steps and when SIGUSR2 asks for one; a later attempt goes on there.
MUSTER_CHECKPOINT_FILE then says which one is safe, so that it is known what a stop would cost.
"""

import hashlib
import json
import os
import random
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import NoReturn

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
ADDRESS = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))
CHECKPOINT = Path(os.environ.get("MUSTER_CHECKPOINT_DIR", ".")) / "checkpoint.json"

SAFE = os.environ.get("MUSTER_CHECKPOINT_FILE", "")

STEPS = int(os.environ.get("STEPS", "40"))
STEP_S = float(os.environ.get("STEP_S", "0.15"))  # what a step of a larger model would take
MEET_WITHIN_S = float(os.environ.get("MEET_WITHIN_S", "30"))
ANSWER_WITHIN_S = 30.0
SAVE_EVERY = 10
POINTS = 64  # of each rank
FEATURES = 8
RATE = 0.2

Vector = list[float]


class Gang:
    """The ranks of this run, connected through rank 0."""

    def __init__(self) -> None:
        self.peers: dict[int, socket.socket] = {}  # of rank 0: all others; of the others: rank 0
        if WORLD > 1:
            self._listen() if RANK == 0 else self._connect()

    def _listen(self) -> None:
        with socket.create_server(ADDRESS, backlog=WORLD) as server:
            deadline = time.monotonic() + MEET_WITHIN_S
            while len(self.peers) < WORLD - 1:
                server.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, WORLD)) - self.peers.keys())
                    fail(f"ranks {missing} did not come within {MEET_WITHIN_S:.0f} s")
                peer.settimeout(ANSWER_WITHIN_S)
                self.peers[int(receive(peer, 1)[0])] = peer

    def _connect(self) -> None:
        deadline = time.monotonic() + MEET_WITHIN_S
        while True:
            try:
                peer = socket.create_connection(ADDRESS, timeout=ANSWER_WITHIN_S)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    fail(f"rank 0 is not at {ADDRESS[0]}:{ADDRESS[1]}: {error}")
                time.sleep(0.05)
        send(peer, [float(RANK)])
        self.peers[0] = peer

    def total(self, values: Vector) -> Vector:
        """The sum of all ranks' values, the same bits on every rank."""
        if RANK != 0:
            send(self.peers[0], values)
            return receive(self.peers[0], len(values))
        for rank in sorted(self.peers):
            values = [a + b for a, b in zip(values, receive(self.peers[rank], len(values)), strict=True)]
        for peer in self.peers.values():
            send(peer, values)
        return values


def send(peer: socket.socket, values: Vector) -> None:
    """The other side has been sent these numbers."""
    try:
        peer.sendall(struct.pack(f"!{len(values)}d", *values))
    except OSError as error:
        fail(f"another rank is gone: {error}")


def receive(peer: socket.socket, count: int) -> Vector:
    """As many numbers from the other side."""
    data = b""
    while len(data) < count * 8:
        try:
            part = peer.recv(count * 8 - len(data))
        except OSError as error:
            fail(f"another rank does not answer: {error}")
        if not part:
            fail("another rank is gone")
        data += part
    return list(struct.unpack(f"!{count}d", data))


def fail(reason: str) -> NoReturn:
    """The end of this rank, and so of the run."""
    sys.exit(f"rank {RANK}: {reason}")


def points() -> list[tuple[Vector, float]]:
    """The points of this rank: of a line that all ranks share, with noise of its own."""
    line = random.Random("the line")
    truth = [line.uniform(-2, 2) for _ in range(FEATURES)]
    draw = random.Random(RANK)
    found = []
    for _ in range(POINTS):
        x = [draw.gauss(0, 1) for _ in range(FEATURES)]
        found.append((x, sum(a * b for a, b in zip(truth, x, strict=True)) + draw.gauss(0, 0.05)))
    return found


def gradient(weights: Vector, data: list[tuple[Vector, float]]) -> Vector:
    """The gradient of the squared error over this rank's points, and behind it the error itself."""
    slope, loss = [0.0] * FEATURES, 0.0
    for x, y in data:
        error = sum(a * b for a, b in zip(weights, x, strict=True)) - y
        loss += error * error
        for place, value in enumerate(x):
            slope[place] += error * value
    return [*slope, loss]


def save(step: int, weights: Vector) -> None:
    """The checkpoint is on the disk, whole, or the one before still is."""
    partial = CHECKPOINT.with_suffix(".part")
    with partial.open("w") as file:
        json.dump({"step": step, "weights": weights}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(CHECKPOINT)
    if SAFE:
        told = Path(SAFE + ".part")
        told.write_text(str(step))
        told.replace(SAFE)


def begin(gang: Gang) -> tuple[int, Vector]:
    """Where the training goes on: rank 0 reads the checkpoint and tells the others."""
    step, weights = 0, [0.0] * FEATURES
    if RANK == 0 and CHECKPOINT.exists():
        saved = json.loads(CHECKPOINT.read_text())
        step, weights = saved["step"], saved["weights"]
        print(f"goes on at step {step} from {CHECKPOINT}", flush=True)
    told = gang.total([float(step), *weights] if RANK == 0 else [0.0] * (FEATURES + 1))
    return int(told[0]), told[1:]


def main() -> None:
    """Trains, and exits with 0 if all ranks agree about the result."""
    asked: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _frame: asked.append(number))
    gang = Gang()
    data = points()
    step, weights = begin(gang)
    if RANK == 0:
        print(f"{WORLD} ranks have met at {ADDRESS[0]}:{ADDRESS[1]}", flush=True)
    while step < STEPS:
        time.sleep(STEP_S)
        # Whether a checkpoint was asked for travels with the gradients: so all ranks stop behind the same step.
        *slope, loss, stopping = gang.total([*gradient(weights, data), float(bool(asked))])
        weights = [weight - RATE * part / (POINTS * WORLD) for weight, part in zip(weights, slope, strict=True)]
        step += 1
        if RANK == 0 and (step % SAVE_EVERY == 0 or step == STEPS or stopping):
            save(step, weights)
            print(f"step {step}/{STEPS}  loss {loss / (POINTS * WORLD):.6f}  saved", flush=True)
        if stopping:
            print(f"rank {RANK}: stops behind step {step}, as it was told", flush=True)
            sys.exit(0)
    print(f"rank {RANK}: weights {hashlib.sha256(repr(weights).encode()).hexdigest()[:12]}", flush=True)
    digest = float(int(hashlib.sha256(repr(weights).encode()).hexdigest()[:8], 16))
    if gang.total([digest])[0] != digest * WORLD:
        fail("the ranks do not agree about the weights")


if __name__ == "__main__":
    main()
