"""Cases of the reasons for which nobody can pay for a job."""

from events.accounts import Account
from events.ask import Basis
from events.base import AccountId, TeamId
from tests.projections.cluster.explain.shown import Shown
from tests.purses import CREDIT, Purse


def no_account() -> Shown:
    """It names one of another team."""
    world = Purse({"n1": 8})
    world.accounts(
        Account(name=AccountId("a"), queues=(TeamId("t"),)), Account(name=AccountId("b"), queues=(TeamId("u"),))
    )
    return Shown(
        world,
        world.submit("job", 1, account="b"),
        "it names account b, which pays for other queues: u",
        {"account": "", "reserves_micro": None, "ahead": 0, "next_action": "submit it with account a"},
    )


def no_price() -> Shown:
    """A node with GPUs that are in no list has joined, and it accepts any."""
    world = Purse({"n1": 8})
    world.join("n2", 8, gpu_type="b200")
    return Shown(
        world,
        world.submit("job", 1),
        "no price is set for GPUs of b200, which it may get",
        {
            "account": "",
            "basis": Basis.UNKNOWN,
            "next_action": "ask an operator for a price of b200, or name types that have one in gpu_types",
        },
    )


def credits_() -> Shown:
    """What is left does not pay for the whole day."""
    world = Purse({"n1": 8, "n2": 8}, granted=342)
    world.paid("runs", on={"n1": 8}, max_runtime_s=86_400)
    job = world.submit("job", 8, max_runtime_s=86_400)
    return Shown(
        world,
        job,
        "needs 192 credits (8 GPUs for 24 h at 1 credit a GPU-hour (h100)), has 150, short 42 credits of account a",
        {
            "account": "a",
            "reserves_micro": 192 * CREDIT,
            "has_micro": 150 * CREDIT,
            "short_micro": 42 * CREDIT,
            "charge": "8 GPUs for 24 h at 1 credit a GPU-hour (h100)",
            "blockers": ("runs",),
            "ahead": 0,
        },
    )
