"""What is wrong with the shares of a gang as an answer to what was asked: a part of the auditor's reading."""

from collections.abc import Iterator

from events.base import Position
from events.job import Domain, JobSpec, NodeShare
from projections.cluster.audit.books import Books, NodeBook


def gang_faults(
    books: Books, spec: JobSpec, shares: tuple[NodeShare, ...], ranks: tuple[int, ...], as_of: Position
) -> Iterator[str]:
    """Sentences: too few GPUs or too many, another shape, another type, a node that was not to be used, ranks twice.

    `as_of`: what was decided on. A node that was described anew since is not judged by its new words.
    """
    sizes = [share.slots.bit_count() for share in shares]
    least = spec.min_gpus if 0 < spec.min_gpus < spec.gpus else spec.gpus
    if not least <= sum(sizes) <= spec.gpus or not all(sizes):
        asked = spec.gpus if least == spec.gpus else f"{least} to {spec.gpus}"
        yield f"{sum(sizes)} GPUs in shares of {sizes}, asked were {asked}"
    names = [share.node_id for share in shares]
    if names != sorted(set(names)):
        yield f"nodes {names} are not in order, or twice"
    if spec.nodes and (set(sizes) != {spec.gpus_per_node} or len(sizes) > spec.nodes):
        yield f"shares of {sizes}, asked were {spec.nodes} x {spec.gpus_per_node}"
    if ranks and sorted(ranks) != list(range(len(shares))):
        yield f"ranks {ranks} are no order of {len(shares)} shares"
    yield from _node_faults(books, spec, shares, as_of)


def _node_faults(books: Books, spec: JobSpec, shares: tuple[NodeShare, ...], as_of: Position) -> Iterator[str]:
    """Of the lives that were meant: what is said of a later one is no fault of who decided before it."""
    nodes = [books.nodes[share.node_id] for share in shares if share.node_id in books.nodes]
    types = {node.gpu_type for node in nodes}
    if len(types) > 1 or (spec.gpu_types and not types <= set(spec.gpu_types)):
        yield f"on GPUs of {sorted(types)}, accepted were {spec.gpu_types or 'any, of one type'}"
    lives = [(s.node_id, books.nodes[s.node_id]) for s in shares if s.node_id in books.nodes]
    meant = [
        (name, node)
        for (name, node), s in zip(lives, shares, strict=False)
        if node.epoch == s.node_epoch and node.described <= as_of
    ]
    for name, node in meant:
        if any(node.labels.get(key) != value for key, value in spec.labels.items()):
            yield f"{name} lacks the labels {spec.labels}"
        if refused := sorted(set(node.taints) - set(spec.tolerates)):
            yield f"{name} has taints that were not to be tolerated: {refused}"
    if (
        spec.topology is not None and spec.topology.required and len(meant) > 1
    ):  # one node is in one, whoever knows which
        within = {_domain(node, spec.topology.within) for _, node in meant}
        if len(within) > 1 or not all(next(iter(within))):
            yield f"in {len(within)} of what was to be one {spec.topology.within}, or in none"


def _domain(node: NodeBook, within: Domain) -> tuple[str, ...]:
    """The spine, or the rack of its spine."""
    spine = node.labels.get(Domain.SPINE, "")
    return ("x", spine) if within is Domain.SPINE else (spine or "-", node.labels.get(Domain.RACK, ""))
