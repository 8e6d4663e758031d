"""Where a list across clusters goes on: the cluster, its own token, and the vector of page one.

    cc1~<check>~<cluster>~<vector>~<the cluster's own token>

Clusters are listed one after the other in the order answers have, so those before the one named are
done. The vector says which clusters the list is of: one that was left out of page one stays out,
and every page tells the same resourceVersion. Vector and token are base64 already and stand here as
they are: packed once more, 500 clusters would not fit a URL.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.errors import BadRequest
from clusterspace.fleet.gateway import names

_MARK: Final = "cc1"
_BETWEEN: Final = "~"
"""Needs no escaping in a URL, and is in no vector and in no name of a cluster."""
_CHECK_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Continue:
    """Where a list goes on."""

    cluster: str
    token: str
    """The cluster's own continue token; empty when nothing of the cluster has been listed yet."""
    versions: str
    """The vector of page one."""

    def remaining(self, clusters: Iterable[str]) -> list[str]:
        """Return those of the clusters that are still to be listed, this one first."""
        start = names.position(self.cluster)
        return [each for each in names.in_order(clusters) if names.position(each) >= start]


def encode(place: Continue) -> str:
    """Return the token that leads there."""
    body = _BETWEEN.join((place.cluster, place.versions, place.token))
    return _BETWEEN.join((_MARK, _check(body), body))


def decode(token: str) -> Continue:
    """Unpack a token; one we did not write is refused, never taken for "from the start"."""
    mark, _, rest = token.partition(_BETWEEN)
    check, _, body = rest.partition(_BETWEEN)
    if mark != _MARK or check != _check(body):
        # The words of a kube-apiserver.
        raise BadRequest(
            "invalid continue token: continue key is not valid: this server did not issue it"
        )
    cluster, versions, member_token = body.split(_BETWEEN, 2)
    return Continue(cluster, member_token, versions)


def _check(body: str) -> str:
    return hashlib.blake2b(body.encode(), digest_size=_CHECK_BYTES).hexdigest()
