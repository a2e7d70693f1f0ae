"""A small neural network, trained by several ranks with NumPy, that goes on after any stop as if there had been none.

All that decides what comes next is in a checkpoint: the weights, the momentum, and the state of the generator that draws
the order of the data. So a run that was stopped, or lost a node, and went on from its last checkpoint ends with the very
same weights and loss, bit for bit, as one that nobody disturbed. docs/requeue.md tells the story.

Each step every rank computes the gradient over its part of the batch, sends it to rank 0 at MASTER_ADDR:MASTER_PORT, and
gets the sum back. Checkpoints go to MUSTER_CHECKPOINT_DIR, which all nodes see: every SAVE_EVERY steps, and when SIGUSR2
says that the run is to stop; MUSTER_STOP_FILE says why, and by when. MUSTER_CHECKPOINT_FILE tells which one is safe.
"""

import hashlib
import json
import os
import signal
import socket
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

try:
    import numpy as np
except ImportError:
    sys.exit(
        "this example needs NumPy, and this Python has none: pip install numpy, or name another python in the spec"
    )

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
ADDRESS = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))
CHECKPOINTS = Path(os.environ.get("MUSTER_CHECKPOINT_DIR", "."))
SAFE = os.environ.get("MUSTER_CHECKPOINT_FILE", "")
STOP = os.environ.get("MUSTER_STOP_FILE", "")

STEPS = int(os.environ.get("STEPS", "200"))
STEP_S = float(os.environ.get("STEP_S", "0.02"))  # what a step of a larger model would take
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "25"))
KEPT = 2  # checkpoints: the last, and the one before in case the last is damaged
MEET_WITHIN_S = 30.0
ANSWER_WITHIN_S = 30.0
POINTS, FEATURES, HIDDEN, BATCH = 512, 6, 16, 64
RATE, MOMENTUM = 0.05, 0.9
SIZES = ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,))  # of the weights and biases of two layers

Array = np.ndarray[Any, np.dtype[Any]]


class Gang:
    """The ranks of this run, connected through rank 0."""

    def __init__(self) -> None:
        self.peers: dict[int, socket.socket] = {}  # of rank 0: all others; of the others: rank 0
        if WORLD > 1:
            self._listen() if RANK == 0 else self._connect()

    def _listen(self) -> None:
        with socket.create_server(ADDRESS, backlog=WORLD) as server:
            server.settimeout(MEET_WITHIN_S)
            while len(self.peers) < WORLD - 1:
                try:
                    peer, _ = server.accept()
                except TimeoutError:
                    fail(f"only {len(self.peers) + 1} of {WORLD} ranks came within {MEET_WITHIN_S:.0f} s")
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
        send(peer, np.array([float(RANK)]))
        self.peers[0] = peer

    def total(self, values: Array) -> Array:
        """The sum of all ranks' values, always added up in the order of ranks: the same bits everywhere, each time."""
        if RANK != 0:
            send(self.peers[0], values)
            return receive(self.peers[0], values.size)
        for rank in sorted(self.peers):
            values = values + receive(self.peers[rank], values.size)
        for peer in self.peers.values():
            send(peer, values)
        return values


def send(peer: socket.socket, values: Array) -> None:
    """The other side has been sent these numbers."""
    try:
        peer.sendall(values.astype("<f8").tobytes())
    except OSError as error:
        fail(f"another rank is gone: {error}")


def receive(peer: socket.socket, count: int) -> Array:
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
    return np.frombuffer(data, "<f8")


def fail(reason: str) -> NoReturn:
    """The end of this rank, and so of the run."""
    sys.exit(f"rank {RANK}: {reason}")


class Training:
    """The network, and all that decides what its next step does."""

    def __init__(self) -> None:
        draw = np.random.default_rng(7)
        self.points = draw.normal(size=(POINTS, FEATURES))
        self.values = np.sin(self.points @ draw.normal(size=FEATURES))[:, None]
        self.weights = np.concatenate([0.5 * draw.normal(size=size).ravel() for size in SIZES])
        self.velocity = np.zeros_like(self.weights)
        self.order = np.random.default_rng(11)
        self.step = 0

    def gradient(self) -> Array:
        """Of the squared error over this rank's part of the next batch; behind it the error itself."""
        batch = self.order.choice(POINTS, BATCH, replace=False)[RANK::WORLD]  # drawn alike by all ranks
        first, bias, second, offset = self._layers()
        x, hidden = self.points[batch], np.tanh(self.points[batch] @ first + bias)
        error = hidden @ second + offset - self.values[batch]
        back = (error @ second.T) * (1.0 - hidden**2)
        parts = (x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0), (error**2).sum()[None])
        return np.concatenate([part.ravel() for part in parts])

    def move(self, slope: Array) -> None:
        """One step down the slope that all ranks found together."""
        self.velocity = MOMENTUM * self.velocity - RATE * slope / BATCH
        self.weights = self.weights + self.velocity
        self.step += 1

    def loss(self) -> float:
        """The mean squared error over all points."""
        first, bias, second, offset = self._layers()
        error = np.tanh(self.points @ first + bias) @ second + offset - self.values
        return float((error**2).mean())

    def _layers(self) -> list[Array]:
        ends = np.cumsum([int(np.prod(size)) for size in SIZES])[:-1]
        return [part.reshape(size) for part, size in zip(np.split(self.weights, ends), SIZES, strict=True)]

    # Checkpoints

    def save(self) -> None:
        """The checkpoint is on the disk, whole; only then it is said to be safe."""
        order = json.dumps(self.order.bit_generator.state)
        target = CHECKPOINTS / f"step-{self.step:06d}.npz"
        write(target, lambda file: np.savez(file, weights=self.weights, velocity=self.velocity, order=order))
        for old in sorted(CHECKPOINTS.glob("step-*.npz"))[:-KEPT]:
            old.unlink()
        if SAFE:
            write(Path(SAFE), lambda file: file.write(str(self.step).encode()))

    def load(self) -> bool:
        """Whether there is a checkpoint to go on from: the newest that can be read."""
        for path in sorted(CHECKPOINTS.glob("step-*.npz"), reverse=True):
            try:
                with np.load(path) as saved:
                    self.weights, self.velocity = saved["weights"], saved["velocity"]
                    self.order.bit_generator.state = json.loads(str(saved["order"]))
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                print(f"rank {RANK}: {path} cannot be read: {error}", flush=True)
                continue
            self.step = int(path.stem.removeprefix("step-"))
            return True
        return False


def write(target: Path, fill: Callable[[BinaryIO], object]) -> None:
    """The file has the new content, whole, or still the old one."""
    partial = target.with_name(f".{target.name}.part")
    with partial.open("wb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(target)


def told_why() -> str:
    """What the stop file says: why the run is to stop, and by when it will have to be gone."""
    try:
        said = json.loads(Path(STOP).read_text()) if STOP else {}
    except (OSError, ValueError):
        said = {}
    return f"{said.get('reason', 'nobody said why')}, deadline {said.get('deadline', 'unknown')}"


def main() -> None:
    """Trains to the last step, or to the one behind which it is told to stop."""
    asked: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _frame: asked.append(number))
    gang, training = Gang(), Training()
    if training.load() and RANK == 0:
        print(f"attempt {os.environ.get('MUSTER_ATTEMPT', '1')} goes on at step {training.step}", flush=True)
    if gang.total(np.array([float(training.step)]))[0] != training.step * WORLD:
        fail("the ranks found different checkpoints: MUSTER_CHECKPOINT_DIR has to be one folder that all nodes see")
    while training.step < STEPS:
        time.sleep(STEP_S)
        # Whether a checkpoint was asked for travels with the gradients: so all ranks stop behind the same step.
        told = gang.total(np.concatenate([training.gradient(), [float(bool(asked))]]))
        training.move(told[:-2])
        if RANK == 0 and (training.step % SAVE_EVERY == 0 or training.step == STEPS or told[-1]):
            training.save()
            print(f"step {training.step}/{STEPS}  loss {told[-2] / BATCH:.6f}  saved", flush=True)
        if told[-1]:
            gang.total(np.zeros(1))  # nobody leaves before rank 0 has saved
            print(f"rank {RANK}: stops behind step {training.step} ({told_why()})", flush=True)
            sys.exit(0)
    digest = hashlib.sha256(training.weights.tobytes()).hexdigest()[:16]
    print(f"rank {RANK}: final loss {training.loss()!r}, weights {digest}", flush=True)


if __name__ == "__main__":
    main()
