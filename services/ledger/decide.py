"""What becomes of accounts: asks are answered, runs that are over are settled, use is recorded, accounts and months closed.

Nothing here lowers what an account has available: that is admission's, which looks first whether there is enough.
"""

from events.base import Event
from projections.cluster.state import Cluster
from projections.cluster.tick import Tick
from services.ledger.asks import answer
from services.ledger.close import close_accounts, close_month
from services.ledger.entries import Entries
from services.ledger.settle import settle, trim
from services.ledger.usage import record_hours


def decide(cluster: Cluster, tick: Tick) -> list[Event]:
    """The ledger's part of a round. What its parts say concerns different accounts, asks and runs: none sees the others."""
    entries = Entries(cluster, tick)
    answer(entries)
    settle(entries)
    trim(entries)
    record_hours(entries)
    close_accounts(entries)
    close_month(entries)
    return entries.events
