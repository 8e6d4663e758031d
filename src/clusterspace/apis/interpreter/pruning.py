"""Taking out of a template what the hub wrote into it and no other cluster may be told.

What is left is what the user wrote, with defaults: an object that can be created anywhere.
"""

from collections.abc import Callable, Mapping
from typing import Final

from clusterspace.apis.interpreter.kinds import (
    CLAIM,
    DEPLOYMENT,
    JOB,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    kind_of,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    with_value,
    without_value,
)
from clusterspace.kube.resources import GroupKind

_SERVERS_METADATA: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
_REVISION: Final = "deployment.kubernetes.io/revision"
_ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105 - a type of Secret
_JOB_UID_LABELS: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
_JOB_LABELS: Final = (*_JOB_UID_LABELS, "job-name", "batch.kubernetes.io/job-name")


def pruned(template: Object) -> Object:
    """Return the template without what belongs to the hub alone."""
    kept = {
        key: held for key, held in metadata_of(template).items() if key not in _SERVERS_METADATA
    }
    bare = {**without_value(template, "status"), "metadata": kept}
    prune = _BY_KIND.get(kind_of(template))
    return bare if prune is None else prune(bare)


def _prune_deployment(deployment: Object) -> Object:
    return _without_annotation(deployment, _REVISION)


def _prune_job(job: Object) -> Object:
    """Take out the selector the hub made: each cluster makes one of the UID the Job has there.

    The hub is what lets finished Jobs expire; a member that did it as well would look as if it had
    lost the Job, and would get it again.
    """
    bare = without_value(job, "spec", "ttlSecondsAfterFinished")
    if find_at(job, "spec", "manualSelector") is True:
        return bare
    bare = _without_keys(bare, _JOB_UID_LABELS, "spec", "selector", "matchLabels")
    if find_at(bare, "spec", "selector") == {}:
        bare = without_value(bare, "spec", "selector")
    return _without_keys(bare, _JOB_LABELS, "spec", "template", "metadata", "labels")


def _prune_service(service: Object) -> Object:
    """Take out the address, unless the user asked for none: each cluster gives its own."""
    if find_at(service, "spec", "clusterIP") == "None":
        return service
    return without_value(without_value(service, "spec", "clusterIP"), "spec", "clusterIPs")


def _prune_service_account(account: Object) -> Object:
    """Take out the tokens that were made for the account here."""
    secrets: list[Object] | None = account.get("secrets")
    if secrets is None:
        return account
    made = f"{name_of(account)}-token-"
    kept = [each for each in secrets if not str(each.get("name") or "").startswith(made)]
    return {**account, "secrets": kept} if kept else without_value(account, "secrets")


def _prune_secret(secret: Object) -> Object:
    if secret.get("type") != _ACCOUNT_TOKEN:
        return secret
    return without_value(_without_annotation(secret, _ACCOUNT_UID), "data")


def _prune_claim(claim: Object) -> Object:
    return _without_annotation(claim, _SELECTED_NODE)


def _without_annotation(manifest: Object, key: str) -> Object:
    if key not in annotations_of(manifest):
        return manifest
    return _without_keys(manifest, (key,), "metadata", "annotations")


def _without_keys(manifest: Object, keys: tuple[str, ...], *path: str) -> Object:
    """Return a copy whose map at the path lacks the keys; an emptied map goes as well."""
    held: Object | None = find_at(manifest, *path)
    if not held:
        return manifest
    kept = {key: value for key, value in held.items() if key not in keys}
    return with_value(manifest, kept, *path) if kept else without_value(manifest, *path)


_BY_KIND: Final[Mapping[GroupKind, Callable[[Object], Object]]] = {
    DEPLOYMENT: _prune_deployment,
    JOB: _prune_job,
    SERVICE: _prune_service,
    SERVICE_ACCOUNT: _prune_service_account,
    SECRET: _prune_secret,
    CLAIM: _prune_claim,
}
