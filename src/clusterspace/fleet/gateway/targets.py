"""Who is asked, and who is skipped, and why."""

from collections.abc import Iterable
from dataclasses import dataclass

from clusterspace.errors import ClusterError, Forbidden
from clusterspace.fleet.gateway.flow import Skipped


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cluster that a request would reach, and what stands in the way."""

    cluster: str
    refusal: Forbidden | None = None
    """The hub's, when the caller may not reach the cluster."""
    problem: ClusterError | None = None
    """Why nobody could reach it just now."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The clusters to ask, and those left out."""

    chosen: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()


def pick_targets(candidates: Iterable[Candidate]) -> Targets:
    """Choose whom nothing stands in the way of; the order stays.

    The refusal comes first: who may not reach a cluster does not learn how it is.
    """
    chosen: list[str] = []
    skipped: list[Skipped] = []
    for each in candidates:
        if each.refusal is not None:
            skipped.append(Skipped(each.cluster, each.refusal.message, each.refusal))
        elif each.problem is not None:
            skipped.append(Skipped(each.cluster, each.problem.why, each.problem))
        else:
            chosen.append(each.cluster)
    return Targets(tuple(chosen), tuple(skipped))
