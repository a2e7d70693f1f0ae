"""A small neural network, trained by several ranks with PyTorch's DistributedDataParallel on CPUs (gloo), that goes on after a stop.

What `torchrun` would set is set by the agent: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. A checkpoint has the weights, the
optimizer, and the state of the generator that draws the order of the data; so a run that was stopped, or lost a node, ends
with the loss of one that nobody disturbed, up to the last bits of floating-point sums. docs/requeue.md tells the story.

Checkpoints go to MUSTER_CHECKPOINT_DIR, which all nodes see: every SAVE_EVERY steps, and when SIGUSR2 says that the run is to
stop; MUSTER_STOP_FILE says why, and by when. MUSTER_CHECKPOINT_FILE tells which one is safe.
"""

import os
import signal
import sys
import time
from pathlib import Path

try:
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    sys.exit("this example needs PyTorch, and this Python has none: pip install torch; train_numpy.py does without")

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
CHECKPOINT = Path(os.environ.get("MUSTER_CHECKPOINT_DIR", ".")) / "checkpoint.pt"
SAFE = os.environ.get("MUSTER_CHECKPOINT_FILE", "")
STOP = os.environ.get("MUSTER_STOP_FILE", "")

STEPS = int(os.environ.get("STEPS", "200"))
STEP_S = float(os.environ.get("STEP_S", "0.02"))  # what a step of a larger model would take
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "25"))
POINTS, FEATURES, HIDDEN, BATCH = 512, 6, 16, 64


def points() -> tuple[torch.Tensor, torch.Tensor]:
    """What is learned: the same points on every rank."""
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(POINTS, FEATURES, generator=draw, dtype=torch.float64)
    return x, torch.sin(x @ torch.randn(FEATURES, 1, generator=draw, dtype=torch.float64))


def save(step: int, model: nn.Module, optimizer: torch.optim.Optimizer, order: torch.Generator) -> None:
    """The checkpoint is on the disk, whole; only then it is said to be safe."""
    partial = CHECKPOINT.with_suffix(".part")
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "order": order.get_state()}
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(CHECKPOINT)
    if SAFE:
        told = Path(SAFE + ".part")
        told.write_text(str(step))
        told.replace(SAFE)


def load(model: nn.Module, optimizer: torch.optim.Optimizer, order: torch.Generator) -> int:
    """The step to go on from: 0 where there is no checkpoint."""
    if not CHECKPOINT.exists():
        return 0
    saved = torch.load(CHECKPOINT, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    order.set_state(saved["order"])
    if RANK == 0:
        print(f"attempt {os.environ.get('MUSTER_ATTEMPT', '1')} goes on at step {saved['step']}", flush=True)
    return int(saved["step"])


def main() -> None:
    """Trains to the last step, or to the one behind which it is told to stop."""
    asked: list[int] = []
    signal.signal(signal.SIGUSR2, lambda number, _frame: asked.append(number))
    distributed.init_process_group("gloo", rank=RANK, world_size=WORLD)
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    order = torch.Generator().manual_seed(13)
    step = load(model, optimizer, order)  # before DDP, which gives all ranks the weights of rank 0
    gang, (x, y) = DistributedDataParallel(model), points()
    while step < STEPS:
        time.sleep(STEP_S)
        batch = torch.randperm(POINTS, generator=order)[:BATCH][RANK::WORLD]  # drawn alike by all ranks
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(gang(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        step += 1
        stopping = torch.tensor([float(bool(asked))])
        distributed.all_reduce(stopping)  # whether any rank was asked: so all stop behind the same step
        if RANK == 0 and (step % SAVE_EVERY == 0 or step == STEPS or stopping.item()):
            save(step, model, optimizer, order)
            print(f"step {step}/{STEPS}  loss {loss.item():.6f}  saved", flush=True)
        if stopping.item():
            distributed.barrier()  # nobody leaves before rank 0 has saved
            said = Path(STOP).read_text() if STOP and Path(STOP).exists() else "nobody said why"
            print(f"rank {RANK}: stops behind step {step} ({said})", flush=True)
            sys.exit(0)
    with torch.no_grad():
        print(f"rank {RANK}: final loss {nn.functional.mse_loss(model(x), y).item()!r}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
