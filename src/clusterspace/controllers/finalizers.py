"""Holding an object until its cleanup is done."""

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Writer
from clusterspace.controllers.commit import commit
from clusterspace.errors import NotFound
from clusterspace.kube.objects import Object, metadata_of, with_metadata


def finalizers_of(kube_object: Object) -> tuple[str, ...]:
    """Return the finalizers an object has."""
    return tuple(metadata_of(kube_object).get("finalizers") or ())


def is_being_deleted(kube_object: Object) -> bool:
    """Whether somebody asked for the object to go; it stays until its finalizers are gone."""
    return bool(metadata_of(kube_object).get("deletionTimestamp"))


def with_finalizer(kube_object: Object, finalizer: str) -> Object:
    """Return the object with the finalizer; the same object when it had it."""
    current = finalizers_of(kube_object)
    if finalizer in current:
        return kube_object
    return with_metadata(kube_object, finalizers=[*current, finalizer])


def without_finalizer(kube_object: Object, finalizer: str) -> Object:
    """Return the object without the finalizer; the same object when it had none."""
    current = finalizers_of(kube_object)
    if finalizer not in current:
        return kube_object
    left = [each for each in current if each != finalizer]
    return with_metadata(kube_object, finalizers=left or None)


async def ensure_finalizer(
    writer: Writer, place: ResourcePath, kube_object: Object, finalizer: str
) -> Object:
    """Hold the object, before the first side effect that would need cleaning up.

    The order is the guarantee: killed after this write, nothing has happened yet; killed after the
    side effect, the object cannot go before somebody cleans up. An object that is being deleted
    takes no new finalizers, and is returned as it is.
    """
    if is_being_deleted(kube_object):
        return kube_object
    return await commit(writer, place, kube_object, with_finalizer(kube_object, finalizer))


async def release(writer: Writer, place: ResourcePath, kube_object: Object, finalizer: str) -> None:
    """Let the object go, after its cleanup; one that is gone or was made anew is left alone."""
    try:
        await commit(writer, place, kube_object, without_finalizer(kube_object, finalizer))
    except NotFound:
        # Ours was the last finalizer and somebody let go for us, or we did before a restart.
        return
