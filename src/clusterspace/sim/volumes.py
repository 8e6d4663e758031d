"""Claims and volumes: bound to each other, and made where storage is asked for.

A claim takes the smallest volume that will do. Where there is none, one is made for it, unless its
class says that nobody makes any: `""`, a class that does not exist, or one whose provisioner is
`kubernetes.io/no-provisioner`. A claim that names no class at all gets a volume: a simulated
cluster always has storage.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from clusterspace.errors import MalformedQuantity, MalformedSelector
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.selectors import label_selector_of
from clusterspace.kube.times import format_time
from clusterspace.sim.api import (
    CLAIM,
    STORAGE_CLASS,
    VOLUME,
    Change,
    Key,
    Mirror,
    key_of,
)
from clusterspace.sim.plans import Plan, with_status
from clusterspace.sim.pods import is_ending, is_finished

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
_DRIVER: Final = "sim.clusterspace.io"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class VolumeController:
    """Binds claims, makes and reclaims volumes; what is in use is kept by apiserver.protection."""

    name = "volumes"
    batch_seconds = 0.0

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._users: defaultdict[Key, set[Key]] = defaultdict(set)
        """A claim to the pods on nodes that mount it and have not ended."""
        self._free: set[Key] = set()
        """Volumes that no claim has."""
        self._volume_of: dict[str, Key] = {}
        """The UID of a claim to the volume that names it."""

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the claims and volumes that a change concerns."""
        latest = change.latest
        match change.kind:
            case "Pod":
                yield from self._note_user(change)
            case "PersistentVolumeClaim":
                yield key_of(latest)
                for version in change.versions:
                    if volume := find_at(version, "spec", "volumeName"):
                        yield Key(VOLUME.name, "", str(volume))
            case "PersistentVolume":
                volume_key = key_of(latest)
                self._free.discard(volume_key)
                if holder := find_at(change.before, "spec", "claimRef", "uid"):
                    self._volume_of.pop(str(holder), None)
                if holder := find_at(change.after, "spec", "claimRef", "uid"):
                    self._volume_of[str(holder)] = volume_key
                elif change.after is not None:
                    self._free.add(volume_key)
                yield volume_key
                claim = _claimed_by(latest)
                if claim is not None:
                    yield claim
                else:
                    yield from self._waiting_claims()
            case "StorageClass":
                yield from self._waiting_claims()
            case _:
                return

    def _note_user(self, change: Change) -> Iterator[Key]:
        pod, key = change.after, key_of(change.latest)
        is_there = pod is not None and not is_finished(pod)
        uses_now = is_there and bool(find_at(pod, "spec", "nodeName"))
        for claim in {each for version in change.versions for each in _claims_of(version)}:
            users = self._users[claim]
            did_use = key in users
            if uses_now:
                users.add(key)
            else:
                users.discard(key)
            if not users:
                del self._users[claim]
            if did_use != uses_now:
                yield claim  # some wait for their first user

    def _waiting_claims(self) -> Iterator[Key]:
        for claim in self._mirror.all(CLAIM):
            if find_at(claim, "status", "phase") != "Bound":
                yield key_of(claim)

    def plan(self, key: Key, now: float) -> Plan:
        """Decide for one claim or volume."""
        subject = self._mirror.find(key)
        if subject is None:
            return Plan()
        match key.kind:
            case "PersistentVolumeClaim" if not is_ending(subject):
                return self._plan_claim(subject)
            case "PersistentVolume":
                return self._plan_volume(subject, now)
            case _:
                return Plan()

    # -- claims --------------------------------------------------------------------------------

    def _plan_claim(self, claim: Object) -> Plan:
        """Bind in steps, each seen before the next: the volume, then the claim, then its status.

        A crash between two of them leaves a volume that names its claim, and the next look goes on.
        """
        name = str(find_at(claim, "spec", "volumeName") or "")
        if name:
            volume = self._mirror.find(Key(VOLUME.name, "", name))
            if volume is None and _BIND_COMPLETED in annotations_of(claim):
                return Plan(status=with_status(claim, {**_status_of(claim), "phase": "Lost"}))
        else:
            volume = self._find_volume(claim)
            if volume is None and self._is_provisioned(claim):
                return Plan(create=(self._new_volume(claim),))
        if volume is None:
            return Plan(status=with_status(claim, {**_status_of(claim), "phase": "Pending"}))
        holder = find_at(volume, "spec", "claimRef", "uid")
        is_meant = _claimed_by(volume) in (None, key_of(claim))
        if not is_meant or (holder and holder != uid_of(claim)):
            return Plan(status=with_status(claim, {**_status_of(claim), "phase": "Pending"}))
        if not holder:
            reference: Object = {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": namespace_of(claim),
                "name": name_of(claim),
                "uid": uid_of(claim),
                "resourceVersion": metadata_of(claim).get("resourceVersion"),
            }
            bound = with_value(volume, reference, "spec", "claimRef")
            if not find_at(volume, "spec", "claimRef"):
                notes = {**annotations_of(volume), _BOUND_BY_CONTROLLER: "yes"}
                bound = with_metadata(bound, annotations=notes)
            return Plan(update=(bound,))
        if not name or _BIND_COMPLETED not in annotations_of(claim):
            notes = {**annotations_of(claim), _BIND_COMPLETED: "yes"}
            if not name:
                notes[_BOUND_BY_CONTROLLER] = "yes"
            named = with_value(claim, name_of(volume), "spec", "volumeName")
            return Plan(update=(with_metadata(named, annotations=notes),))
        status = {
            **_status_of(claim),
            "phase": "Bound",
            "accessModes": find_at(volume, "spec", "accessModes"),
            "capacity": find_at(volume, "spec", "capacity"),
        }
        if attributes := find_at(claim, "spec", "volumeAttributesClassName"):
            status["currentVolumeAttributesClassName"] = attributes
        return Plan(status=with_status(claim, status))

    def _find_volume(self, claim: Object) -> Object | None:
        """Return the volume that names the claim, or the smallest free one that will do."""
        if bound := self._volume_of.get(uid_of(claim)):
            return self._mirror.find(bound)
        fitting: list[tuple[int, str, Object]] = []
        for key in self._free:
            volume = self._mirror.find(key)
            if volume is None or is_ending(volume):
                continue
            named = _claimed_by(volume)
            if named == key_of(claim):
                return volume
            if named is None and _will_do(volume, claim):
                fitting.append((_size_of(volume), name_of(volume), volume))
        return min(fitting, default=(0, "", None))[2]

    def _is_provisioned(self, claim: Object) -> bool:
        name = find_at(claim, "spec", "storageClassName")
        if name is None:
            return True
        storage_class = self._mirror.find(Key(STORAGE_CLASS.name, "", str(name)))
        if storage_class is None or storage_class.get("provisioner") == _NO_PROVISIONER:
            return False
        waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
        return not waits or bool(self._users.get(key_of(claim)))

    def _new_volume(self, claim: Object) -> Object:
        name = f"pvc-{uid_of(claim)}"
        class_name = find_at(claim, "spec", "storageClassName")
        storage_class = self._mirror.find(Key(STORAGE_CLASS.name, "", str(class_name))) or {}
        spec: Object = {
            "capacity": find_at(claim, "spec", "resources", "requests"),
            "accessModes": find_at(claim, "spec", "accessModes"),
            "volumeMode": find_at(claim, "spec", "volumeMode") or "Filesystem",
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": namespace_of(claim),
                "name": name_of(claim),
                "uid": uid_of(claim),
            },
            "csi": {"driver": _DRIVER, "volumeHandle": name},
        }
        if class_name:
            spec["storageClassName"] = class_name
        if attributes := find_at(claim, "spec", "volumeAttributesClassName"):
            spec["volumeAttributesClassName"] = attributes
        notes = {_PROVISIONED_BY: storage_class.get("provisioner") or _DRIVER}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": notes},
            "spec": spec,
        }

    # -- volumes -------------------------------------------------------------------------------

    def _plan_volume(self, volume: Object, now: float) -> Plan:
        """Say whether a volume is free, taken or left; one that was made for a claim goes then.

        One that is being deleted is told of, too: what is bound is kept until it says otherwise.
        """
        key = _claimed_by(volume)
        holder = find_at(volume, "spec", "claimRef", "uid")
        claim = None if key is None else self._mirror.find(key)
        present: Object = volume.get("status") or {}
        if not holder:
            phase = "Available"
        elif claim is None or uid_of(claim) != holder:
            phase = "Released"
            policy = find_at(volume, "spec", "persistentVolumeReclaimPolicy")
            is_reclaimed = policy == "Delete" and _PROVISIONED_BY in annotations_of(volume)
            if is_reclaimed and present.get("phase") == phase and not is_ending(volume):
                return Plan(delete=(volume,))
        elif find_at(claim, "spec", "volumeName") == name_of(volume):
            phase = "Bound"
        else:
            return Plan()  # the claim is on its way
        if present.get("phase") == phase:
            return Plan()
        stamp = format_time(now)
        status = {**present, "phase": phase, "lastPhaseTransitionTime": stamp}
        return Plan(status=with_status(volume, status))


def _claims_of(pod: Object) -> Iterator[Key]:
    for volume in find_at(pod, "spec", "volumes") or ():
        name = find_at(volume, "persistentVolumeClaim", "claimName")
        if not name and volume.get("ephemeral"):
            name = f"{name_of(pod)}-{volume['name']}"
        if name:
            yield Key(CLAIM.name, namespace_of(pod), str(name))


def _claimed_by(volume: Object) -> Key | None:
    reference: Object | None = find_at(volume, "spec", "claimRef")
    if not reference:
        return None
    namespace, name = str(reference.get("namespace") or ""), str(reference.get("name") or "")
    return Key(CLAIM.name, namespace, name)


def _status_of(claim: Object) -> Object:
    return dict(claim.get("status") or {})


def _size_of(kube_object: Object) -> int:
    where = ("capacity",) if kube_object["kind"] == VOLUME.name else ("resources", "requests")
    try:
        return parse_quantity(str(find_at(kube_object, "spec", *where, "storage") or "0")).whole
    except MalformedQuantity:
        return 0


def _will_do(volume: Object, claim: Object) -> bool:
    """Whether a volume is of the class, mode and size that a claim asks for."""
    spec: Object = claim["spec"]
    asked: list[str] = spec.get("accessModes") or []
    given: list[str] = find_at(volume, "spec", "accessModes") or []
    selector: Object | None = spec.get("selector")
    try:
        is_selected = selector is None or label_selector_of(selector).matches(labels_of(volume))
    except MalformedSelector:
        is_selected = False
    mode = find_at(volume, "spec", "volumeMode") or "Filesystem"
    return (
        is_selected
        and set(asked) <= set(given)
        and (find_at(volume, "spec", "storageClassName") or "")
        == (spec.get("storageClassName") or "")
        and mode == (spec.get("volumeMode") or "Filesystem")
        and _size_of(volume) >= _size_of(claim)
    )
