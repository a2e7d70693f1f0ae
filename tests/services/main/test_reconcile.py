"""What people are told of a comparison of three sums."""

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from events.base import START, AccountId, position_of
from projections.cluster.audit.audit import Finding
from projections.tables.misfits import Misfit
from projections.tables.reconcile import Alarm, Reconciled, Sums
from services.main.reconcile import document, lines_of

ALPHA: Final = AccountId("alpha")
SAME: Final = Reconciled(
    position=position_of(1, 9),
    records=9,
    entries=3,
    accounts={
        ALPHA: Sums(entry=3, granted_micro=192_000_000, committed_micro=500_000, balance_micro=191_500_000),
        AccountId("b"): Sums(),
    },
    alarms=(),
    misfits=(),
    findings=(),
    broken=0,
    unread=START,
)
DIFFERS: Final = replace(
    SAME,
    alarms=(
        Alarm(ALPHA, "balance_micro", 191_500_000, 191_500_000, 191_499_999),
        Alarm(ALPHA, "open of bills", None, 1, 0),
    ),
    misfits=(
        Misfit("credit_entry", ALPHA, "3", "balance_micro", 191_499_999, 191_500_000, position_of(1, 8), "id-8"),
        Misfit("bill_view", ALPHA, "j1-1", "row", "there", None, START, ""),
    ),
    findings=(Finding(position_of(1, 7), "asked for, and answered once", "CreditGranted, entry 2 of alpha"),),
    broken=3,
    unread=position_of(1, 7),
)


def test_what_agrees_is_one_table_and_one_sentence() -> None:
    """What was compared, up to where, and what every account has."""
    assert lines_of(SAME) == [
        "ACCOUNT  BALANCE  GRANTED  ADJUSTED  COMMITTED  RESERVED  OWED  ENTRIES",
        "alpha      191.5      192         0        0.5         0     0        3",
        "b              0        0         0          0         0     0        0",
        "",
        (
            "same    the log, the tables and the auditor agree to the micro-credit: accounts: 2, entries: 3, records: 9, "
            "up to position 1:9"
        ),
    ]


def test_what_differs_is_named_with_account_row_and_event() -> None:
    """To the micro-credit; and what is not listed is counted."""
    assert lines_of(DIFFERS)[4:] == [
        "DIFFER  accounts: 2, entries: 3, records: 9, up to position 1:9",
        "        alpha: balance: the log 191.5, the auditor 191.5, the tables 191.499999",
        "        alpha: open of bills: the auditor 1, the tables 0",
        (
            "        credit_entry of alpha, 3: balance_micro: the table says 191499999, the log 191500000 "
            "(record 1:8, event id-8)"
        ),
        "        bill_view of alpha, j1-1: row: the table says there, the log nothing (no such record)",
        "        record 1:7: asked for, and answered once: CreditGranted, entry 2 of alpha",
        "        and 2 findings more; muster verify lists them",
        "        record 1:7 contradicts those before it: from there on nothing is decided",
    ]


def test_programs_get_all_of_it() -> None:
    """As JSON, amounts in micro-credits."""
    said: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document(DIFFERS)))

    assert (said["same"], document(SAME)["same"]) == (False, True)
    assert said["accounts"]["alpha"]["balance_micro"] == 191_500_000
    assert said["alarms"][0] == {
        "account": "alpha",
        "what": "balance_micro",
        "fold": 191_500_000,
        "audit": 191_500_000,
        "tables": 191_499_999,
    }
    assert said["misfits"][0]["event_id"] == "id-8"
    assert said["findings"][0]["law"] == "asked for, and answered once"
