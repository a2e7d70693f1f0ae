"""Snapshots of the fold: a saved place to start from, thrown away when anything about it does not match."""

from datetime import datetime
from hashlib import blake2b
from typing import Final

import msgspec

from events.accounts import AccountsSet
from events.base import Position, TeamId
from events.codec import vocabulary
from events.policy import PolicySet
from events.prices import PricesSet
from events.queues import Queue
from events.teller import AdjustmentAsked, GrantAsked
from projections.cluster.credit.book import Bill, Book
from projections.cluster.credit.keep import put_bill, put_debt
from projections.cluster.credit.payers import Payers
from projections.cluster.credit.state import Entry
from projections.cluster.index import put_job, put_node, put_run
from projections.cluster.job import Earmark, Job, Promise, Run
from projections.cluster.node import Node
from projections.cluster.quota.tree import Tree
from projections.cluster.state import FOLD_VERSION, Alarm, Cluster, Past


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All of a cluster that no index can be made from."""

    fold_version: int
    vocabulary: str
    log_id: str
    position: Position
    at: str | None  # ISO 8601
    head: Position
    epoch: Position
    leader: str
    policy: PolicySet
    policy_position: Position
    queues: list[Queue]
    queues_position: Position
    unread: Position
    nodes: list[Node]
    jobs: list[Job]
    runs: list[Run]
    earmarks: list[Earmark]
    promises: list[Promise]
    past: list[tuple[TeamId, Past]]
    alarms: list[Alarm]
    accounts: AccountsSet | None
    accounts_position: Position
    prices: PricesSet | None
    prices_since: tuple[Position, ...]
    books: list[Book]
    bills: list[Bill]
    asked: list[GrantAsked | AdjustmentAsked]
    debts: list[tuple[Entry, int]]
    given_back: list[tuple[Entry, int]]
    month_closed: str


DIGEST_BYTES: Final = 16  # before the rest: damage may well leave something that can be read, and is not what was saved

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)


def dump(cluster: Cluster) -> bytes:
    """The cluster as bytes; the same for the same cluster, however it came about."""
    saved = _encoder.encode(
        Snapshot(
            fold_version=FOLD_VERSION,
            vocabulary=vocabulary(),
            log_id=cluster.log_id,
            position=cluster.position,
            at=cluster.at.isoformat() if cluster.at is not None else None,
            head=cluster.head,
            epoch=cluster.epoch,
            leader=cluster.leader,
            policy=cluster.policy,
            policy_position=cluster.policy_position,
            queues=list(cluster.queues.values()),
            queues_position=cluster.queues_position,
            unread=cluster.unread,
            nodes=[_sorted_node(cluster.nodes[node_id]) for node_id in sorted(cluster.nodes)],
            jobs=[cluster.jobs[job_id] for job_id in sorted(cluster.jobs)],
            runs=[cluster.runs[run_id] for run_id in sorted(cluster.runs)],
            earmarks=[cluster.earmarks[job_id] for job_id in sorted(cluster.earmarks)],
            promises=[cluster.promises[job_id] for job_id in sorted(cluster.promises)],
            past=[(team, cluster.past[team]) for team in sorted(cluster.past)],
            alarms=[cluster.alarms[code] for code in sorted(cluster.alarms)],
            accounts=cluster.credits.payers.document,
            accounts_position=cluster.credits.payers_position,
            prices=cluster.credits.prices,
            prices_since=cluster.credits.prices_since,
            books=[cluster.credits.books[account] for account in sorted(cluster.credits.books)],
            bills=[cluster.credits.bills[run_id] for run_id in sorted(cluster.credits.bills)],
            asked=[cluster.credits.asked[ask_id] for ask_id in sorted(cluster.credits.asked)],
            debts=sorted(cluster.credits.debts.items()),
            given_back=sorted(cluster.credits.given_back.items()),
            month_closed=cluster.credits.month_closed,
        )
    )
    return _digest(saved) + saved


def load(data: bytes, *, log_id: str) -> Cluster | None:
    """The cluster of a snapshot of this log; None where it is damaged, of another log, or of another version."""
    digest, payload = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    if digest != _digest(payload):
        return None
    try:
        saved = _decoder.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if (saved.fold_version, saved.vocabulary, saved.log_id) != (FOLD_VERSION, vocabulary(), log_id):
        return None
    cluster = Cluster()
    cluster.log_id, cluster.position, cluster.leader = saved.log_id, saved.position, saved.leader
    cluster.at = datetime.fromisoformat(saved.at) if saved.at is not None else None
    cluster.head, cluster.epoch = saved.head, saved.epoch
    cluster.policy, cluster.policy_position = saved.policy, saved.policy_position
    cluster.queues, cluster.queues_position = {queue.name: queue for queue in saved.queues}, saved.queues_position
    cluster.tree = Tree(cluster.queues)
    cluster.unread = saved.unread
    cluster.earmarks = {earmark.job_id: earmark for earmark in saved.earmarks}
    cluster.promises = {promise.job_id: promise for promise in saved.promises}
    cluster.past = dict(saved.past)
    cluster.alarms = {alarm.code: alarm for alarm in saved.alarms}
    _load_credits(cluster, saved)
    for node in saved.nodes:
        put_node(cluster, node.being(node.fitness))
    for job in saved.jobs:
        put_job(cluster, job)
    for run in saved.runs:
        put_run(cluster, run)
    return cluster


def _load_credits(cluster: Cluster, saved: Snapshot) -> None:
    cluster.credits.books = {book.account: book for book in saved.books}
    closed = {book.account for book in saved.books if book.closed}
    cluster.credits.payers, cluster.credits.payers_position = (
        Payers(saved.accounts, closed=closed),
        saved.accounts_position,
    )
    cluster.credits.prices, cluster.credits.prices_since = saved.prices, saved.prices_since
    cluster.credits.asked = {ask.ask_id: ask for ask in saved.asked}
    cluster.credits.given_back = dict(saved.given_back)
    cluster.credits.month_closed = saved.month_closed
    for of, owed in saved.debts:
        put_debt(cluster, of, owed)
    for bill in saved.bills:
        put_bill(cluster, bill)


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=DIGEST_BYTES).digest()


def _sorted_node(node: Node) -> Node:
    maps = {name: dict(sorted(getattr(node, name).items())) for name in ("held", "owed", "earmarked", "labels")}
    ailments = dict(sorted(node.fitness.ailments.items()))
    return msgspec.structs.replace(node, **maps, fitness=msgspec.structs.replace(node.fitness, ailments=ailments))
