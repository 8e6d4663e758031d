"""What ran under an object when it was taken over, kept on its Work until the Work goes.

    to be adopted ──> pods, containers, revisions noted on the Work ──> adopted

Noted before the write that takes it over, so that it is from before whatever becomes of that;
`why` compares it with what runs when it is asked. Only what others had made is noted, once for each
takeover. A migration keeps proofs of its own for all that it takes.
"""

from typing import Final, cast

import msgspec

from clusterspace.apis import kinds, stamps
from clusterspace.apis.kinds import kind_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ListOptions, Reader
from clusterspace.errors import ApiError, ClusterError
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    name_of,
    namespace_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import age, parse_time

TAKEN_OVER: Final = "clusterspace.io/taken-over"
"""Annotation of a Work: what ran under its object when that was taken over."""

_PODS: Final = GroupVersionResource("", "v1", "pods")
_REPLICA_SETS: Final = GroupVersionResource("apps", "v1", "replicasets")
_MOST_PODS: Final = 200
"""Noted of one object: an annotation has its bounds, and two hundred tell as much as a thousand."""


class PodIdentity(msgspec.Struct, frozen=True):
    """What a pod keeps for as long as nobody replaces or restarts anything of it."""

    uid: str
    containers: dict[str, str] = {}
    """ID and restarts of each container, as one text."""


class Running(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object, and what ran under it at some time."""

    uid: str
    at: str = ""
    pods: dict[str, PodIdentity] = {}
    replica_sets: dict[str, str] = msgspec.field(default_factory=dict[str, str], name="replicaSets")
    """UIDs by name."""
    unseen: str = ""
    """Why pods could not be looked at: then nothing is said about them."""


_decoder: Final = msgspec.json.Decoder(Running)


async def read_running(member: Reader, live: Object, at: str) -> Running:
    """Return what runs under an object now; what cannot be seen is said, and is no failure."""
    kind, labels = kind_of(live), find_at(live, "spec", "selector", "matchLabels")
    has_pods = kind in (kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.DAEMON_SET, kinds.REPLICA_SET)
    if not has_pods or not labels:
        return Running(uid_of(live), at)
    selector = ",".join(f"{key}={value}" for key, value in sorted(cast("Object", labels).items()))
    options = ListOptions(label_selector=selector, limit=_MOST_PODS)
    owners, replica_sets = {uid_of(live)}, dict[str, str]()
    try:
        if kind == kinds.DEPLOYMENT:
            place = ResourcePath(_REPLICA_SETS, namespace_of(live))
            found = await member.list_objects(place, options)
            made = [each for each in found if _owner_of(each) == uid_of(live)]
            replica_sets = {name_of(each): uid_of(each) for each in made}
            owners = set(replica_sets.values())
        listed = await member.list_objects(ResourcePath(_PODS, namespace_of(live)), options)
    except (ApiError, ClusterError) as error:
        return Running(uid_of(live), at, unseen=str(error)[:200])
    pods = {
        name_of(each): PodIdentity(uid_of(each), _containers_of(each))
        for each in listed[:_MOST_PODS]
        if _owner_of(each) in owners
    }
    return Running(uid_of(live), at, pods, replica_sets)


def _owner_of(kube_object: Object) -> str:
    references: list[Object] = find_at(kube_object, "metadata", "ownerReferences") or []
    return next((str(each.get("uid")) for each in references if each.get("controller")), "")


def _containers_of(pod: Object) -> dict[str, str]:
    statuses: list[Object] = find_at(pod, "status", "containerStatuses") or []
    return {
        str(each.get("name")): f"{each.get('containerID', '')} {each.get('restartCount', 0)}"
        for each in statuses
    }


def is_proved_elsewhere(manifest: Object) -> bool:
    """Whether a migration takes the object, which keeps proofs of all that ran."""
    return stamps.MIGRATION in annotations_of(manifest)


def encode(running: Running) -> str:
    """Return what an annotation has of it."""
    return msgspec.json.encode(running).decode()


def noted_on(work: Object | None) -> Running | None:
    """Return what ran when the object of a Work was taken over; None when nobody took it over."""
    text = annotations_of(work or {}).get(TAKEN_OVER)
    if text is None:
        return None
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return None  # somebody wrote over it: then there is no proof


def compare(before: Running, after: Running, now: float) -> str:
    """Return what became of what ran, as a sentence; whatever is not the same comes first."""
    when = f"taken over {age(max(now - parse_time(before.at), 0.0))} ago"
    if before.uid != after.uid:
        return f"{when}: it was deleted and made anew since"
    if before.unseen or after.unseen:
        return f"{when}: pods could not be looked at: {before.unseen or after.unseen}"
    if not before.pods and not after.pods:
        return f"{when}: the same object, by its UID"
    replaced = [k for k, pod in before.pods.items() if after.pods.get(k, _NONE).uid != pod.uid]
    restarted = [
        key
        for key, pod in before.pods.items()
        if key not in replaced and after.pods[key].containers != pod.containers
    ]
    gone = [key for key in before.replica_sets if key not in after.replica_sets]
    said = [
        f"{len(each)} of {len(before.pods)} pods {what}, such as {each[0]}"
        for each, what in ((replaced, "are gone or replaced"), (restarted, "restarted"))
        if each
    ]
    said += [f"ReplicaSet {gone[0]} is gone"] if gone else []
    if said:
        return f"{when}: {'; '.join(said)}"
    pods = "the same pod" if len(before.pods) == 1 else f"the same {len(before.pods)} pods"
    return f"{when}: {pods}, and no container restarted"


_NONE: Final = PodIdentity("")
