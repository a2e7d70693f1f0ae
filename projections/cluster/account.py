"""What teams used in the past, each GPU-second halved for every half-life since: exact, from the log's own times."""

from datetime import datetime
from math import log
from typing import Final

from events.base import TeamId
from projections.cluster.state import Cluster, Past

LN_2: Final = log(2)
LEAST_GPU_S: Final = 1e-6  # less than this is none: it would halve for ever


def account(cluster: Cluster, team: TeamId, at: datetime) -> None:
    """What the team uses now counts up to `at`; called before each change of it. Nothing without a half-life."""
    if cluster.policy.half_life_s:
        cluster.past[team] = Past(past_gpu_s(cluster, team, at), at)


def settle(cluster: Cluster, at: datetime, *, half_life_s: int) -> None:
    """What all teams used counts up to `at` by the half-life that held so far; from now on, another one holds.

    From none to one: use counts from now on. From one to none: it is forgotten.
    """
    if half_life_s == cluster.policy.half_life_s:
        return
    teams = sorted({*cluster.past, *cluster.teams}) if half_life_s else []
    cluster.past = {team: Past(past_gpu_s(cluster, team, at), at) for team in teams}


def past_gpu_s(cluster: Cluster, team: TeamId, at: datetime) -> float:
    """GPU-seconds that the team used up to `at`, each halved for every half-life since it was used.

    The integral of use x 2^(-age / half-life) over each interval of constant use, in closed form; no samples.
    """
    past, half_life_s = cluster.past.get(team), cluster.policy.half_life_s
    if past is None or not half_life_s:
        return 0.0
    kept: float = 0.5 ** (max(0.0, (at - past.at).total_seconds()) / half_life_s)
    gpu_s = past.gpu_s * kept + cluster.teams.get(team, 0) * (1 - kept) * half_life_s / LN_2
    return gpu_s if gpu_s >= LEAST_GPU_S else 0.0
