"""Who besides the leader of the controllers looks at Push clusters, and what they saw.

Nobody is evicted from a Push cluster because one process does not reach it. Others that could reach
it say what they see with a Lease each in `kube-public`: for clusters that the hub holds for not
ready, whether these answer; and how many of the others do, for who hears nobody has seen nothing.

    Lease kube-public/clusterspace-witness-3f9a…
      labels       clusterspace.io/witness: "true"
      annotations  clusterspace.io/place: fleet API server on host-7
                   clusterspace.io/others-heard: 4/5
                   clusterspace.io/away: UID UID      clusterspace.io/answering: UID
      spec         holderIdentity: 3f9a…   renewTime: …   leaseDurationSeconds: 30

Clusters are named by UID: who may read `kube-public` learns no names, and a Cluster that is made
anew under an old name has nothing said of it.
"""

from dataclasses import dataclass
from typing import Final

from clusterspace.kube.objects import Object, annotations_of, find_at, name_of
from clusterspace.kube.times import format_micro_time

SUBRESOURCE: Final = "witness"
"""`update` on `clusters/witness`: the right to be believed about clusters; no URL."""

LEASE_NAMESPACE: Final = "kube-public"
LEASE_PREFIX: Final = "clusterspace-witness-"
LABEL: Final = "clusterspace.io/witness"
FRESH_SECONDS: Final = 30.0
"""For how long what a witness says counts, from when its Lease was seen to change."""

CONFIRMED: Final = "UnreachableConfirmed"
"""Condition of a Push cluster that is not ready: whether other places do not reach it, either."""

_PLACE: Final = "clusterspace.io/place"
_OTHERS: Final = "clusterspace.io/others-heard"
_AWAY: Final = "clusterspace.io/away"
_ANSWERING: Final = "clusterspace.io/answering"
_LONGEST_PLACE: Final = 128
_MOST_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class WitnessReport:
    """What one witness saw when it last looked; clusters by UID."""

    identity: str
    place: str = ""
    """What it is and where it runs, for people."""
    away: frozenset[str] = frozenset()
    """Clusters, not ready by the hub's word, that did not answer it either, look after look."""
    answering: frozenset[str] = frozenset()
    """Clusters, not ready by the hub's word, that do answer it."""
    others_asked: int = 0
    """How many it asked of those that are ready by the hub's word."""
    others_heard: int = 0

    @property
    def lease_name(self) -> str:
        """The name of its Lease."""
        return LEASE_PREFIX + self.identity

    @property
    def is_credible(self) -> bool:
        """Whether it is likely to be the clusters: most of those that are well do answer it."""
        return self.others_heard > 0 and 2 * self.others_heard >= self.others_asked


def is_witness_lease(namespace: str, name: str) -> bool:
    """Whether a Lease of this name is believed about clusters."""
    return namespace == LEASE_NAMESPACE and name.startswith(LEASE_PREFIX)


def lease_of(report: WitnessReport, now: float) -> Object:
    """Return the Lease by which a witness says what it saw."""
    notes = {
        _PLACE: report.place[:_LONGEST_PLACE],
        _OTHERS: f"{report.others_heard}/{report.others_asked}",
        _AWAY: " ".join(sorted(report.away)),
        _ANSWERING: " ".join(sorted(report.answering)),
    }
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": report.lease_name,
            "namespace": LEASE_NAMESPACE,
            "labels": {LABEL: "true"},
            "annotations": {key: value for key, value in notes.items() if value},
        },
        "spec": {
            "holderIdentity": report.identity,
            "leaseDurationSeconds": int(FRESH_SECONDS),
            "renewTime": format_micro_time(now),
        },
    }


def read_report(lease: Object) -> WitnessReport | None:
    """Return what a Lease says; None when it is no witness's, or cannot be read."""
    identity = find_at(lease, "spec", "holderIdentity")
    if not isinstance(identity, str) or name_of(lease) != LEASE_PREFIX + identity:
        return None
    notes = annotations_of(lease)
    heard, _, asked = notes.get(_OTHERS, "").partition("/")
    if not all(each.isdecimal() and len(each) <= _MOST_DIGITS for each in (heard, asked)):
        return None
    return WitnessReport(
        identity,
        notes.get(_PLACE, "")[:_LONGEST_PLACE],
        frozenset(notes.get(_AWAY, "").split()),
        frozenset(notes.get(_ANSWERING, "").split()),
        int(asked),
        int(heard),
    )
