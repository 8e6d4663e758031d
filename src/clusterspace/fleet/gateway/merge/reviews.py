"""May I, asked of a fleet: yes when every cluster says yes, else who does and who does not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.errors import ClusterMisbehaved
from clusterspace.fleet.gateway.flow import Reply
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.objects import Object, find_at

_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one cluster says of somebody's right to do something."""

    cluster: str
    is_allowed: bool
    reason: str = ""


def read_opinion(reply: Reply) -> Opinion:
    """Read an access review that a cluster answered; ClusterMisbehaved when it is none."""
    try:
        review: Any = msgspec.json.decode(reply.body)
    except UNREADABLE as error:
        raise ClusterMisbehaved(reply.cluster, "its access review cannot be read") from error
    allowed = find_at(review, "status", "allowed") if isinstance(review, dict) else None
    if not isinstance(allowed, bool):
        raise ClusterMisbehaved(reply.cluster, "its access review decides nothing")
    reason = find_at(cast("Object", review), "status", "reason")
    return Opinion(reply.cluster, allowed, str(reason or ""))


def merge(opinions: Sequence[Opinion]) -> Mapping[str, Any]:
    """Return the status of the fleet's own answer; there must be an opinion.

    A right that some clusters refuse is none of the whole fleet's: whoever relies on a yes would
    be refused halfway.
    """
    willing = [each.cluster for each in opinions if each.is_allowed]
    refusing = [each for each in opinions if not each.is_allowed]
    if not refusing:
        return {"allowed": True, "reason": opinions[0].reason}
    if not willing:
        return {"allowed": False, "reason": refusing[0].reason}
    denied = _enumerated([each.cluster for each in refusing])
    return {"allowed": False, "reason": f"denied in {denied}; allowed in {_enumerated(willing)}"}


def _enumerated(clusters: Sequence[str]) -> str:
    more = len(clusters) - _MOST_NAMED
    listed = ", ".join(clusters[:_MOST_NAMED])
    return f"{listed} and {more} more" if more > 0 else listed
