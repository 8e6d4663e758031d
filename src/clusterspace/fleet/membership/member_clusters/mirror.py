"""Labels and taints of a MemberCluster onto its Cluster, so that they count for every policy.

Others write both fields too: health taints, `cordon`, labels people give the Cluster. So it is
written down what came from the MemberCluster, and only that is changed or taken back:

    mirrored before    k=v:NoSchedule
    MemberCluster now  gpu=yes:NoSchedule
    Cluster            k=v, not-ready   ──>   not-ready, gpu=yes
"""

from typing import Final

import msgspec

from clusterspace.apis import clusters, member_clusters
from clusterspace.fleet.membership.taints import with_taints
from clusterspace.kube.objects import Object, annotations_of, labels_of, with_metadata

MIRRORED: Final = "clusterspace.io/mirrored-from-membercluster"
"""Annotation of a Cluster: what of it came from its MemberCluster, as JSON."""

_TAINT_FIELDS: Final = ("key", "value", "effect")


class Mirrored(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a Cluster came from its MemberCluster."""

    labels: tuple[str, ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()


def mirrored(cluster: Object, member_cluster: Object) -> Object:
    """Return the Cluster with the labels and taints its MemberCluster has now."""
    before = read_mirrored(cluster)
    wanted = member_clusters.taints_of(member_cluster)
    labels = {key: text for key, text in labels_of(cluster).items() if key not in before.labels}
    merged = {**labels, **labels_of(member_cluster)}
    kept = [each for each in clusters.taints_of(cluster) if _taint_key(each) not in before.taints]
    own = [_taint(each) for each in wanted if _taint_key(each) not in map(_taint_key, kept)]
    now = Mirrored(tuple(sorted(labels_of(member_cluster))), tuple(map(_taint_key, own)))
    annotations = {**annotations_of(cluster), MIRRORED: msgspec.json.encode(now).decode()}
    labelled = with_metadata(cluster, labels=merged or None, annotations=annotations)
    return with_taints(labelled, _in_place(cluster, [*kept, *own]))


def read_mirrored(cluster: Object) -> Mirrored:
    """Return what is written down; a text that is not ours means nothing is."""
    try:
        return msgspec.json.decode(annotations_of(cluster).get(MIRRORED, "{}"), type=Mirrored)
    except msgspec.DecodeError:
        return Mirrored()


def _in_place(cluster: Object, wanted: list[Object]) -> list[Object]:
    """Return the taints in the order the Cluster has them, so that no order is fought over."""
    order = [_taint_key(each) for each in clusters.taints_of(cluster)]
    held = {_taint_key(each): each for each in wanted}
    first = [held.pop(key) for key in order if key in held]
    return [*first, *held.values()]


def _taint(taint: Object) -> Object:
    return {field: taint[field] for field in _TAINT_FIELDS if taint.get(field)}


def _taint_key(taint: Object) -> tuple[str, str, str]:
    key, value, effect = (str(taint.get(field) or "") for field in _TAINT_FIELDS)
    return key, value, effect
