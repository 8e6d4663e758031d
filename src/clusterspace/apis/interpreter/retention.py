"""What a member keeps of an object when a manifest is put over it.

Some fields of a kind are the member's to decide: the address of a Service, the volume of a claim,
the replicas of a Deployment that an autoscaler looks after. There the member's value wins.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from clusterspace.apis import stamps
from clusterspace.apis.interpreter import kinds
from clusterspace.apis.interpreter.kinds import kind_of
from clusterspace.kube.managed_fields.field_sets import Path
from clusterspace.kube.managed_fields.managers import raw_entries, read_entries
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupKind

_REPLICAS: Final[Path] = ("f:spec", "f:replicas")
_AUTOSCALERS: Final = ("kube-controller-manager", "autoscal", "keda")
"""Part of the names of those who scale by themselves; a person who scales by hand is `kubectl`."""
_ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105 - a type of Secret
_CONTAINERS: Final = ("initContainers", "containers")


def retain(manifest: Object, live: Object) -> Object:
    """Return the manifest with what the member keeps in it."""
    kept = with_metadata(
        manifest,
        labels=_retained_words(
            labels_of(manifest), labels_of(live), _listed(live, stamps.MANAGED_LABELS_LIST)
        )
        or None,
        annotations=_retained_words(
            annotations_of(manifest),
            annotations_of(live),
            _listed(live, stamps.MANAGED_ANNOTATIONS_LIST),
        )
        or None,
    )
    retain_kind = _BY_KIND.get(kind_of(manifest))
    return kept if retain_kind is None else retain_kind(kept, live)


def is_autoscaled(live: Object) -> bool:
    """Whether an autoscaler on the member set the replicas an object has.

    Autoscalers write through the `scale` subresource, and the member notes who did.
    """
    return any(
        entry.subresource == "scale"
        and _REPLICAS in entry.fields
        and any(word in entry.manager for word in _AUTOSCALERS)
        for entry in read_entries(raw_entries(live)).values()
    )


def _retained_words(
    wanted: Mapping[str, str], live: Mapping[str, str], managed: frozenset[str]
) -> dict[str, str]:
    """Return labels or annotations: the member's own stay, what we once set and dropped goes."""
    own = {key: value for key, value in live.items() if key in wanted or key not in managed}
    return {**own, **wanted}


def _listed(live: Object, annotation: str) -> frozenset[str]:
    """Return the keys we noted on the object as ours when we last wrote it."""
    return frozenset(annotations_of(live).get(annotation, "").split(","))


def _retain_replicas(manifest: Object, live: Object) -> Object:
    is_told_to = labels_of(manifest).get(stamps.RETAIN_REPLICAS) == "true"
    if is_told_to or is_autoscaled(live):
        return _retain_at(manifest, live, "spec", "replicas")
    return manifest


def _retain_job(manifest: Object, live: Object) -> Object:
    """Keep the labels by which the member's Job finds its pods: they are made for each Job."""
    kept = _retain_at(manifest, live, "spec", "selector", "matchLabels")
    return _retain_at(kept, live, "spec", "template", "metadata", "labels")


def _retain_service(manifest: Object, live: Object) -> Object:
    kept = _retain_at(manifest, live, "spec", "clusterIP")
    return _retain_at(kept, live, "spec", "healthCheckNodePort")


def _retain_pod(manifest: Object, live: Object) -> Object:
    """Keep where a Pod runs and what was mounted into it: both are decided on the member."""
    kept = manifest
    for field in ("nodeName", "serviceAccountName", "volumes"):
        kept = _retain_at(kept, live, "spec", field)
    for field in _CONTAINERS:
        containers: list[Object] | None = find_at(kept, "spec", field)
        if containers:
            mounts = _mounts_by_container(live, field)
            mounted = [_with_mounts(each, mounts) for each in containers]
            kept = with_value(kept, mounted, "spec", field)
    return kept


def _mounts_by_container(live: Object, field: str) -> dict[str, Any]:
    containers: list[Object] = find_at(live, "spec", field) or []
    return {str(each.get("name")): each.get("volumeMounts") for each in containers}


def _with_mounts(container: Object, mounts: Mapping[str, Any]) -> Object:
    held = mounts.get(str(container.get("name")))
    return container if held is None else {**container, "volumeMounts": held}


def _retain_account(manifest: Object, live: Object) -> Object:
    """Keep the tokens and pull secrets the member gave an account, beside the manifest's own."""
    kept = manifest
    for field in ("secrets", "imagePullSecrets"):
        wanted = cast("list[Object]", manifest.get(field) or [])
        own = [each for each in live.get(field) or () if each not in wanted]
        if own:
            kept = {**kept, field: [*wanted, *own]}
    return kept


def _retain_secret(manifest: Object, live: Object) -> Object:
    if live.get("type") != _ACCOUNT_TOKEN:
        return manifest
    return _retain_at(manifest, live, "data")


def _retain_claim(manifest: Object, live: Object) -> Object:
    return _retain_at(manifest, live, "spec", "volumeName")


def _retain_volume(manifest: Object, live: Object) -> Object:
    return _retain_at(manifest, live, "spec", "claimRef")


def _retain_at(manifest: Object, live: Object, *path: str) -> Object:
    held = find_at(live, *path)
    return manifest if held is None else with_value(manifest, held, *path)


_BY_KIND: Final[Mapping[GroupKind, Callable[[Object, Object], Object]]] = {
    kinds.DEPLOYMENT: _retain_replicas,
    kinds.REPLICA_SET: _retain_replicas,
    kinds.STATEFUL_SET: _retain_replicas,
    kinds.JOB: _retain_job,
    kinds.SERVICE: _retain_service,
    kinds.POD: _retain_pod,
    kinds.SERVICE_ACCOUNT: _retain_account,
    kinds.SECRET: _retain_secret,
    kinds.CLAIM: _retain_claim,
    kinds.VOLUME: _retain_volume,
}
