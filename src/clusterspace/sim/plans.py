"""What a controller may ask for, and whom it counts as its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.errors import ApiError
from clusterspace.kube.objects import Object, labels_of, metadata_of, name_of, uid_of, with_metadata
from clusterspace.kube.selectors import LabelSelector
from clusterspace.sim.api import Kind, Mirror

_EMPTY: Final[tuple[Any, ...]] = (None, 0, "", [], {})


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do about one object, carried out in the order of the fields."""

    create: tuple[Object, ...] = ()
    """New objects; one whose name is taken is left as it is."""
    update: tuple[Object, ...] = ()
    """Objects to replace at the version they carry."""
    delete: tuple[Object, ...] = ()
    remove: tuple[Object, ...] = ()
    """Pods to delete without a moment to stop: nobody is there who would stop them."""
    status: Object | None = None
    """The object with its new status; None when it says so already."""
    again_after: float | None = None
    """When time alone will change the answer."""
    on_refusal: Callable[[ApiError], Object | None] | None = None
    """The object with a status that tells of a refused create or delete."""


def with_status(kube_object: Object, status: Object) -> Object | None:
    """Return the object with this status, or None when it says the same already.

    A count of zero and one that is left out are the same, here as in Kubernetes. Conditions that
    the status does not speak of are somebody else's, and stay.
    """
    present: Object = kube_object.get("status") or {}
    status = {"conditions": present.get("conditions"), **status}
    desired, current = (
        {key: value for key, value in each.items() if value not in _EMPTY}
        for each in (status, present)
    )
    if desired == current:
        return None
    return {**kube_object, "status": {k: v for k, v in status.items() if v is not None}}


def owner_reference(owner: Object) -> Object:
    """Return the reference that makes `owner` the controller of what carries it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


# -- adoption and release: who counts is decided by labels, and written down as ownership --------


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a controller counts as its own, and the references to write before it acts on it."""

    owned: tuple[Object, ...]
    update: tuple[Object, ...] = ()


def claim(
    mirror: Mirror,
    owner: Object,
    kind: Kind,
    selector: LabelSelector,
    may_adopt: Callable[[Object], bool] = lambda _: True,
    finalizer: str = "",
) -> Claimed:
    """Adopt what matches the selector and is nobody's; release what matches no longer.

    An owner that is ending does neither: what it has goes with it. `finalizer` is one that the
    owner puts on its own and takes from what it releases.
    """
    owned = mirror.owned_by(owner, kind)
    if metadata_of(owner).get("deletionTimestamp"):
        return Claimed(owned)
    kept = tuple(each for each in owned if selector.matches(labels_of(each)))
    released = [each for each in owned if not selector.matches(labels_of(each))]
    adopted = [
        each
        for each in mirror.orphans(kind, str(metadata_of(owner).get("namespace") or ""))
        if selector.matches(labels_of(each))
        and not metadata_of(each).get("deletionTimestamp")
        and may_adopt(each)
    ]
    update: list[Object] = []
    for each in released:
        references = [one for one in _references(each) if one.get("uid") != uid_of(owner)]
        finalizers = [one for one in _finalizers(each) if one != finalizer]
        update.append(
            with_metadata(each, ownerReferences=references or None, finalizers=finalizers or None)
        )
    for each in adopted:
        references = [*_references(each), owner_reference(owner)]
        finalizers = _finalizers(each)
        if finalizer and finalizer not in finalizers:
            finalizers = [*finalizers, finalizer]
        update.append(
            with_metadata(each, ownerReferences=references, finalizers=finalizers or None)
        )
    return Claimed(kept, tuple(update))


def _references(kube_object: Object) -> Sequence[Object]:
    return cast("list[Object]", metadata_of(kube_object).get("ownerReferences") or [])


def _finalizers(kube_object: Object) -> list[str]:
    return cast("list[str]", metadata_of(kube_object).get("finalizers") or [])
