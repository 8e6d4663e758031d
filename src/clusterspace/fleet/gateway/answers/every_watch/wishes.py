"""What a client that watches every cluster asks for: read once, refused as Kubernetes refuses."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import BadRequest, Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.resources import GroupKind

_OURS: Final = frozenset(
    {
        "allowWatchBookmarks", "continue", "includeObject", "limit", "resourceVersion",
        "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
    }
)  # fmt: skip
_NOT_OLDER: Final = "NotOlderThan"
_MOST_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class WatchWish:
    """How a watch is to begin, what it is to show, and when it is to end."""

    version: str = ""
    sends_initial: bool | None = None
    """Whether it begins with everything there is, and says when that is complete."""
    wants_bookmarks: bool = False
    seconds: int = 0
    """After which it ends; 0 leaves that to us."""
    include: str = ""
    """How much of an object stands beside its row in a Table."""

    @property
    def resumes(self) -> bool:
        """Whether it goes on from a version."""
        return self.version not in ("", "0") and not self.sends_initial

    @property
    def starts_now(self) -> bool:
        """Whether it is of what happens from now on, and nothing else."""
        return not self.resumes and self.sends_initial is False


def read_wish(query: Query) -> WatchWish:
    """Read the parameters of a watch; raise Invalid with every combination that makes no sense."""
    if found := list(_causes(query)):
        raise statuses.invalid(GroupKind("meta.k8s.io", "ListOptions"), "", found)
    has_word = bool(query.get("sendInitialEvents"))
    return WatchWish(
        version=query.get("resourceVersion"),
        sends_initial=query.is_true("sendInitialEvents") if has_word else None,
        wants_bookmarks=query.is_true("allowWatchBookmarks"),
        seconds=_seconds(query.get("timeoutSeconds")),
        include=query.get("includeObject"),
    )


def without_wish(query: Query) -> Query:
    """Return the parameters that are the cluster's business: selectors, and what we do not know."""
    return Query(tuple(pair for pair in query.pairs if pair[0] not in _OURS))


def _causes(query: Query) -> Iterator[Cause]:
    field, match = "resourceVersionMatch", query.get("resourceVersionMatch")
    if not query.get("sendInitialEvents"):
        if match:
            why = f"{field} is forbidden for watch unless sendInitialEvents is provided"
            yield causes.forbidden(field, why)
        return
    if match != _NOT_OLDER:
        why = f"sendInitialEvents requires setting {field} to {_NOT_OLDER}"
        yield causes.forbidden(field, why)
    if match not in ("", _NOT_OLDER):
        yield causes.not_supported(field, match, (_NOT_OLDER,))


def _seconds(text: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise BadRequest(f"timeoutSeconds: {text[:64]!r} is not a number of seconds")
    return int(text or 0)
