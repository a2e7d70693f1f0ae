"""What teams used in the past, each GPU-second halved for every half-life since: exact, from the log's own times."""

from datetime import datetime
from math import log
from typing import Final

from events.base import TeamId
from projections.cluster.state import Cluster, Past

LN_2: Final = log(2)


def account(cluster: Cluster, team: TeamId, at: datetime) -> None:
    """What the team uses now counts up to `at`; called before each change of it. Nothing without a half-life."""
    if cluster.policy.half_life_s:
        cluster.past[team] = Past(past_gpu_s(cluster, team, at), at)


def past_gpu_s(cluster: Cluster, team: TeamId, at: datetime) -> float:
    """GPU-seconds that the team used up to `at`, each halved for every half-life since it was used.

    The integral of use x 2^(-age / half-life) over each interval of constant use, in closed form; no samples.
    """
    past, half_life_s = cluster.past.get(team), cluster.policy.half_life_s
    if past is None or not half_life_s:
        return 0.0
    used = sum(gpus for use, gpus in cluster.usage.items() if use.team == team)
    kept: float = 0.5 ** (max(0.0, (at - past.at).total_seconds()) / half_life_s)
    return past.gpu_s * kept + used * (1 - kept) * half_life_s / LN_2
