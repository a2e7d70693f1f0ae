"""The queue file and the policy in examples/, and the pages about them: they are taken, and they name every field."""

import re
from pathlib import Path

import yaml

from events.policy import PolicySet
from events.queues import QueuesSet
from runtime.clock import ManualClock
from services.gate.policy import PolicyTyped, checked_policy, policy_document
from services.gate.queue_tree import beyond, oddities
from services.gate.queues import QueueTyped, checked_queues

ROOT = Path(__file__).parents[2]
AT = ManualClock().now()
ROW = re.compile(r"^\| `(\w+)` \|([^|]*)\|[^|]*\|[^|]*\|$", re.MULTILINE)


def rows(page: str) -> dict[str, str]:
    """Every field that a page has a row of, with its default."""
    return {found[0]: found[1].strip() for found in ROW.findall((ROOT / "docs" / page).read_text())}


def test_the_queue_file_is_taken() -> None:
    """Without a warning, on the cluster that `muster up` starts."""
    queues = checked_queues(yaml.safe_load((ROOT / "examples" / "queues.yaml").read_text()), AT)
    assert isinstance(queues, QueuesSet), queues
    assert oddities(queues.queues, []) == beyond(queues.queues, {"h100": 32}) == []


def test_the_policy_is_taken() -> None:
    """It changes something, and not everything."""
    policy = checked_policy(yaml.safe_load((ROOT / "examples" / "policy.yaml").read_text()), AT)
    assert isinstance(policy, PolicySet), policy
    assert (policy.promises, policy.lost_after_s) == (4, 90.0)


def test_the_page_about_queue_files_names_every_field_with_its_default() -> None:
    """A field that is added has its row."""
    told = rows("queue-files.md")
    assert told.keys() == QueueTyped.model_fields.keys()
    defaults = {name: field.default for name, field in QueueTyped.model_fields.items()}
    assert {name: told[name] for name in ("weight", "order", "stop")} == {
        "weight": str(defaults["weight"]), "order": f"`{defaults['order']}`", "stop": f"`{defaults['stop']}`"
    }  # fmt: skip


def test_the_page_about_the_policy_names_every_field_with_its_default() -> None:
    """As `muster policy show` prints it, where nobody has set one."""
    shown = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in policy_document(None).items()
    }
    assert rows("policy.md") == shown
    assert shown.keys() == PolicyTyped.model_fields.keys()


def test_the_example_of_the_page_is_taken() -> None:
    """It is what a first file is copied from."""
    page = (ROOT / "docs" / "queue-files.md").read_text()
    (block,) = re.findall(r"\n\n((?:    [^\n]*\n)+)", page[page.index("## The file") :])[:1]
    queues = checked_queues(yaml.safe_load(block), AT)
    assert isinstance(queues, QueuesSet), queues
    assert [queue.name for queue in queues.queues] == ["research", "language", "vision", "sales"]
