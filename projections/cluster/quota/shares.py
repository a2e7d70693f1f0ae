"""How the GPUs of a type are shared out down the tree: floors first, then what is unused by weight, up to what is wanted."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from events.base import TeamId
from projections.cluster.account import past_gpu_s
from projections.cluster.quota.claims import Claims
from projections.cluster.quota.share_out import by_weight, in_proportion
from projections.cluster.quota.tree import ALL_TYPES, OWN, ROOT
from projections.cluster.state import Cluster

Amounts = dict[str, int]  # queue -> GPUs of one type
UNBOUNDED: Final = 1 << 40  # GPUs, in place of a limit that nobody set
PARTS: Final = 1_000_000  # of the whole, in which weights that were corrected by past use are counted


class Shares:
    """Entitlements, floors and weights of all queues; each is worked out when it is first asked for, and then stays."""

    def __init__(self, cluster: Cluster, claims: Claims, at: datetime) -> None:
        self._cluster = cluster
        self._tree = cluster.tree
        self._claims = claims
        self._at = at
        self._children: dict[str, list[str]] | None = None
        self._weights: dict[str, int] = {}
        self._wanted: dict[str, Amounts] = {}  # by type: what is used and wanted, as far as limits allow
        self._laid: dict[str, Amounts] = {}  # by queue: a floor over all types, laid on types
        self._floors: dict[str, Amounts] = {}
        self._highest: dict[str, Amounts] = {}
        self._entitled: dict[str, Amounts] = {}

    def entitled(self, gpu_type: str) -> Amounts:
        """What each queue may claim of a type now."""
        if gpu_type not in self._entitled:
            self._share_out(self._types(gpu_type))
        return self._entitled[gpu_type]

    def by_queue(self) -> dict[str, Amounts]:
        """What each queue may claim with all below it, by GPU type; without those that may claim nothing."""
        found: dict[str, Amounts] = {}
        for gpu_type in sorted(self._cluster.capacity):
            for name, gpus in self.entitled(gpu_type).items():
                if gpus and name != ROOT and not name.endswith(OWN):
                    found.setdefault(name, {})[gpu_type] = gpus
        return found

    def floors(self, gpu_type: str) -> Amounts:
        """What each queue has of a type for sure, whatever the others want."""
        if gpu_type not in self._floors:
            amounts = {ROOT: self._cluster.capacity.get(gpu_type, 0)}
            for parent, children in self.families().items():
                floors = self._floors_among(children, amounts[parent], gpu_type)
                amounts.update(zip(children, floors, strict=True))
            self._floors[gpu_type] = amounts
        return self._floors[gpu_type]

    def highest_floors(self, gpu_type: str) -> Amounts:
        """The most that `floors` could say, on whichever types floors over all types are laid: whatever anybody wants."""
        if not self._tree.laid:
            return self.floors(gpu_type)
        if gpu_type not in self._highest:
            amounts = {ROOT: self._cluster.capacity.get(gpu_type, 0)}
            for parent, children in self.families().items():
                most = self._most_among(children, amounts[parent], gpu_type, exact=parent == ROOT)
                amounts.update(zip(children, most, strict=True))
            self._highest[gpu_type] = amounts
        return self._highest[gpu_type]

    def floor_of_all(self, name: str, *, highest: bool = False) -> int:
        """What a queue has for sure over all types; with `highest`, the most that it could have."""
        bounds = self._tree.bounds.get(name, {}).get(ALL_TYPES)
        if bounds is not None and bounds.floor is not None:
            return bounds.floor
        floors = self.highest_floors if highest else self.floors
        return sum(floors(gpu_type).get(name, 0) for gpu_type in self._cluster.capacity)

    def weight(self, name: str) -> int:
        """The part of a queue among its siblings, corrected by what it used in the past if the policy says so."""
        if not self._cluster.policy.half_life_s:
            return self._tree.weight(name)
        if not self._weights:
            self._correct_weights()
        return self._weights.get(name, 1)

    # The tree as it is now

    def families(self) -> dict[str, list[str]]:
        """Each queue that has others below it, parents before children, and these by name; teams that have jobs too."""
        if self._children is not None:
            return self._children
        known = {name: list(children) for name, children in self._tree.children.items()}
        for team in self._cluster.tallies:
            if team in known:
                known[team].append(team + OWN)
            elif team not in self._tree.queues:
                known.setdefault(ROOT, []).append(team)
        children = self._children = {ROOT: sorted(known.get(ROOT, ()))}
        pending = [ROOT]
        for parent in pending:
            below = [name for name in children[parent] if name in known]
            children.update((name, sorted(known[name])) for name in below)
            pending += below
        return children

    def _types(self, gpu_type: str) -> list[str]:
        """The types that can only be shared out together with this one, by name."""
        return sorted({gpu_type, *self._cluster.capacity}) if self._tree.over_all else [gpu_type]

    # Shares

    def _share_out(self, types: Sequence[str]) -> None:
        """Entitlements of some types, from the top down.

        Source: weighted max-min fairness, level by level; floors and what is withheld of them are served before it.
        """
        wanted = self._limited(types, borrowing=False)
        if self._tree.borrowing:
            wanted = self._limited(types, borrowing=True)
        lendable = self._lendable()
        for gpu_type in types:
            amounts = {ROOT: self._cluster.capacity.get(gpu_type, 0)}
            for parent, children in self.families().items():
                asked = [wanted[gpu_type][name] for name in children]
                floors = self._floors_within(parent, amounts[parent], asked, gpu_type)
                siblings = list(zip(children, asked, floors, strict=True))
                granted = self._grant(amounts[parent], siblings, gpu_type, lendable)
                amounts.update(zip(children, granted, strict=True))
            self._entitled[gpu_type] = amounts

    def _floors_within(self, parent: str, amount: int, asked: Sequence[int], gpu_type: str) -> list[int]:
        """What each child of a queue has for sure of the queue's `amount`.

        Where that is less than the queue's floor, since less is wanted, it is what they have of the whole floor: what one
        of them does not want of its own, and does not lend, is not at the cost of its siblings'.
        """
        children = self.families()[parent]
        if self._tree.bounds and amount < (whole := self.floors(gpu_type)[parent]):
            floors = self._floors_among(children, whole, gpu_type)
            if sum(map(min, asked, floors)) <= amount:
                return floors
        return self._floors_among(children, amount, gpu_type)

    def _grant(
        self, amount: int, siblings: Sequence[tuple[str, int, int]], gpu_type: str, lendable: Amounts
    ) -> list[int]:
        """What each may claim of `amount`: of its floor what it asks for, then by weight what is left.

        `siblings`: name, what is asked, and the floor.
        """
        sure = [min(want, floor) for _, want, floor in siblings]
        left = amount - sum(sure)
        if self._tree.bounds:
            unused = [(name, floor - part) for (name, _, floor), part in zip(siblings, sure, strict=True)]
            left = max(0, left - sum([self._kept(name, gpu_type, gpus, lendable) for name, gpus in unused]))
        rest = [want - part for (_, want, _), part in zip(siblings, sure, strict=True)]
        more = by_weight(left, rest, [self.weight(name) for name, _, _ in siblings])
        return [part + lent for part, lent in zip(sure, more, strict=True)]

    def _lendable(self) -> Amounts:
        """Of those that lend so much over all types and no more: how much."""
        bounds = ((name, of_queue.get(ALL_TYPES)) for name, of_queue in self._tree.bounds.items())
        return {name: b.lending_limit for name, b in bounds if b is not None and b.lending_limit is not None}

    def _kept(self, name: str, gpu_type: str, unused: int, lendable: Amounts) -> int:
        """What a queue does not lend of a floor that it does not use."""
        lent = unused
        bounds = self._tree.bounds.get(name, {}).get(gpu_type)
        if bounds is not None and bounds.lending_limit is not None:
            lent = min(lent, bounds.lending_limit)
        if (left := lendable.get(name)) is not None:
            lent = min(lent, left)
            lendable[name] = left - lent
        return unused - lent

    # What is wanted

    def _limited(self, types: Sequence[str], *, borrowing: bool) -> dict[str, Amounts]:
        """What queues use and want, none beyond its limits, from the teams up: what is beyond a team's is not its queue's."""
        wanted: dict[str, Amounts] = {gpu_type: {} for gpu_type in types}
        families = self.families()
        for children in reversed(families.values()):
            for name in children:
                for gpu_type in types:
                    below = families.get(name)
                    wanted[gpu_type][name] = (
                        sum([wanted[gpu_type][child] for child in below])
                        if below is not None
                        else self._claims.demand(name, gpu_type)
                    )
                if name in self._tree.bounds:
                    self._trim(wanted, name, types, borrowing=borrowing)
        if not borrowing:
            self._wanted.update(wanted)
        return wanted

    def _trim(self, wanted: dict[str, Amounts], name: str, types: Sequence[str], *, borrowing: bool) -> None:
        """A queue wants no more than its bounds of each type allow, then no more than those over all, by name of type."""
        of_queue = self._tree.bounds[name]
        for gpu_type in types:
            if gpu_type in of_queue:
                most = self._most(name, gpu_type, borrowing=borrowing)
                wanted[gpu_type][name] = min(wanted[gpu_type][name], most)
        if ALL_TYPES in of_queue:
            left = self._most(name, ALL_TYPES, borrowing=borrowing)
            for gpu_type in types:
                wanted[gpu_type][name] = min(wanted[gpu_type][name], left)
                left -= wanted[gpu_type][name]

    def _most(self, name: str, gpu_type: str, *, borrowing: bool) -> int:
        bounds = self._tree.bounds[name][gpu_type]
        most = bounds.limit if bounds.limit is not None else UNBOUNDED
        if borrowing and bounds.borrowing_limit is not None:
            floor = self.floor_of_all(name) if gpu_type == ALL_TYPES else self.floors(gpu_type).get(name, 0)
            most = min(most, floor + bounds.borrowing_limit)
        return most

    # Floors

    def _floors_among(self, children: Sequence[str], amount: int, gpu_type: str) -> list[int]:
        """What each of some siblings has for sure of what is above them.

        Those with a floor have it, in proportion where there is not enough for all; the others have their weight's
        part of the whole, in proportion where what is left is less.
        """
        weights = [self._tree.weight(name) for name in children]
        shares = in_proportion(amount, weights)
        if not self._tree.bounds:
            return shares
        set_ones = [self._set_floor(name, gpu_type) for name in children]
        fixed = [floor or 0 for floor in set_ones]
        if sum(fixed) >= amount:
            return in_proportion(amount, fixed)
        open_ones = [share if floor is None else 0 for share, floor in zip(shares, set_ones, strict=True)]
        if sum(open_ones) > (left := amount - sum(fixed)):
            open_ones = in_proportion(left, open_ones)
        return [by_rights + floor for by_rights, floor in zip(open_ones, fixed, strict=True)]

    def _most_among(self, children: Sequence[str], amount: int, gpu_type: str, *, exact: bool) -> list[int]:
        """The most that each of some siblings could have for sure of what is above them, at the most `amount`.

        Where it may be less, the parts of those without a floor are rounded up: by largest remainders a part of less
        may be one more.
        """
        weights = [self._tree.weight(name) for name in children]
        total = sum(weights)
        rounded = in_proportion(amount, weights) if exact else [-(-amount * one // (total or 1)) for one in weights]
        set_ones = [self._written_floor(name, gpu_type) for name in children]
        return [share if floor is None else min(floor, amount) for share, floor in zip(rounded, set_ones, strict=True)]

    def _written_floor(self, name: str, gpu_type: str) -> int | None:
        """The floor that the document sets for a queue, of this type or else of all; None where it sets none."""
        of_queue = self._tree.bounds.get(name, {})
        found = (of_queue[key].floor for key in (gpu_type, ALL_TYPES) if key in of_queue)
        return next((floor for floor in found if floor is not None), None)

    def _set_floor(self, name: str, gpu_type: str) -> int | None:
        """The floor that the document sets for a queue, of this type or as laid on it; None where it sets none."""
        of_queue = self._tree.bounds.get(name)
        if of_queue is None:
            return None
        if gpu_type in of_queue and of_queue[gpu_type].floor is not None:
            return of_queue[gpu_type].floor
        if ALL_TYPES in of_queue and of_queue[ALL_TYPES].floor is not None:
            return self._lay(name).get(gpu_type, 0)
        return None

    def _lay(self, name: str) -> Amounts:
        """A floor over all types, on the types it is wanted for and then on the others, by name; not on types with their own."""
        if name in self._laid:
            return self._laid[name]
        of_queue = self._tree.bounds[name]
        left = of_queue[ALL_TYPES].floor or 0
        capacity = self._cluster.capacity
        types = [t for t in sorted(capacity) if t not in of_queue or of_queue[t].floor is None]
        if not self._wanted:
            self._limited(sorted(capacity), borrowing=False)
        laid = dict.fromkeys(types, 0)
        for most in (self._wanted, {t: {name: capacity[t]} for t in types}):
            for gpu_type in types:
                more = min(left, max(0, most[gpu_type].get(name, 0) - laid[gpu_type]))
                laid[gpu_type] += more
                left -= more
        self._laid[name] = laid
        return laid

    # Weights

    def _correct_weights(self) -> None:
        """Weights w and past use u of siblings, each as parts of their sum, make 2w - u, or nothing where that is less.

        Source: KAI-Scheduler, time-based fair share, with a factor of 1.
        """
        past = {team: past_gpu_s(self._cluster, team, self._at) for team in sorted(self._cluster.past)}
        used: dict[str, float] = {}
        for team, gpu_s in past.items():
            for name in self._claims.path(team):
                used[name] = used.get(name, 0.0) + gpu_s
        for children in self.families().values():
            weights = sum(self._tree.weight(name) for name in children)
            all_used = sum(used.get(name, 0.0) for name in children)
            for name in children:
                part = self._tree.weight(TeamId(name)) / weights if weights else 0.0
                past_part = used.get(name, 0.0) / all_used if all_used else part
                self._weights[name] = max(0, round((2 * part - past_part) * PARTS))
