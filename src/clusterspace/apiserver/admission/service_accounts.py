"""The ServiceAccount of a pod: which one it is, what it brings along, and what it allows.

On a hub a pod is a template. The account may be one that only members have, so a missing one is a
warning there and no refusal; and the pull secrets of the hub's account are not copied into it, for
the member's account has its own. The token is mounted as everywhere, so that whoever runs pods
beside this server gets the pods of Kubernetes; `pruned` takes it out on the way to members.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

from clusterspace.apiserver.admission.pods import refused
from clusterspace.apiserver.identity.following import find_object
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.builtins.pods import MOUNT_PATH, PREFIX, TOKEN_SOURCE
from clusterspace.kube import statuses
from clusterspace.kube.names import generate_name
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    name_of,
    namespace_of,
    with_value,
)
from clusterspace.kube.resources import GroupResource

_DEFAULT: Final = "default"
MIRROR: Final = "kubernetes.io/config.mirror"
_ENFORCES_SECRETS: Final = "kubernetes.io/enforce-mountable-secrets"
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_CONTAINERS: Final = (
    ("initContainers", "init container"),
    ("containers", "container"),
)

_TRIES: Final = 10
_WAIT_SECONDS: Final = 0.15
"""The default account of a new namespace is made a moment after it; a pod may be quicker."""


class ServiceAccount(Plugin):
    """Gives new pods their account, and mounts its token where nobody opted out."""

    name = "ServiceAccount"

    def __init__(self, *, is_hub: bool = False) -> None:
        self._is_hub = is_hub

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Complete a new pod from its account, which must be there."""
        pod = admission.new
        if not _is_new_pod(admission):
            return pod
        if MIRROR in annotations_of(pod):
            # What a kubelet shows of a pod it runs by itself: it would not know a changed one.
            _check_mirror(admission)
            return pod
        spec = cast("Object", pod["spec"])
        name = str(spec.get("serviceAccountName") or _DEFAULT)
        # Both names of the field are one and the same on the wire.
        pod = {**pod, "spec": {**spec, "serviceAccountName": name, "serviceAccount": name}}
        account = await self._account(hub, admission, name)
        if account is None:
            return pod
        automount = spec.get("automountServiceAccountToken")
        if automount is None:
            automount = account.get("automountServiceAccountToken")
        if automount is not False:
            pod = with_token(pod, lambda: generate_name(PREFIX, hub.random))
        secrets = cast("list[Object]", account.get("imagePullSecrets") or [])
        if secrets and not spec.get("imagePullSecrets") and not self._is_hub:
            named = [{"name": each.get("name", "")} for each in secrets]
            pod = with_value(pod, named, "spec", "imagePullSecrets")
        return pod

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Refuse secrets that the account does not list, where it says that it lists them all."""
        is_debugged = admission.is_of("", "Pod") and admission.subresource == "ephemeralcontainers"
        if not _is_new_pod(admission) and not is_debugged:
            return
        pod = admission.new
        if not is_debugged and MIRROR in annotations_of(pod):
            _check_mirror(admission)
            return
        name = str(find_at(pod, "spec", "serviceAccountName") or "")
        if not name:
            place = f"{namespace_of(pod)}/{name_of(pod)}"
            raise refused(admission, f"no service account specified for pod {place}")
        account = await self._account(hub, admission, name)
        if account is None or annotations_of(account).get(_ENFORCES_SECRETS) not in _TRUE:
            return
        fields = (("ephemeralContainers", "ephemeral container"),) if is_debugged else _CONTAINERS
        for why in _unlisted_secrets(pod, account, fields):
            raise refused(admission, why)

    async def _account(self, hub: HubState, admission: Admission, name: str) -> Object | None:
        """Return the account; None on a hub that lacks it, where its author is told."""
        namespace = namespace_of(admission.new)
        tries = _TRIES if name == _DEFAULT and not self._is_hub else 1
        for attempt in range(tries):
            if attempt:
                await hub.clock.sleep(_WAIT_SECONDS)
            found = await find_object(hub, "", "serviceaccounts", namespace, name)
            if found is not None:
                return found
        if not self._is_hub:
            missing = statuses.not_found(GroupResource("", "serviceaccount"), name).message
            why = f"error looking up service account {namespace}/{name}: {missing}"
            raise refused(admission, why)
        if name != _DEFAULT:
            admission.warn(
                f"there is no ServiceAccount {namespace}/{name} here: "
                "a cluster that runs the pod must have it"
            )
        return None


def _is_new_pod(admission: Admission) -> bool:
    return admission.is_create and admission.is_of("", "Pod") and not admission.subresource


def with_token(pod: Object, new_name: Any) -> Object:
    """Return a pod whose containers have the token of its account, unless they mount their own."""
    spec = cast("Object", pod["spec"])
    volumes = cast("list[Object]", spec.get("volumes") or [])
    names = (str(each.get("name") or "") for each in volumes)
    name = next((each for each in names if each.startswith(PREFIX)), "")
    volume = name or str(new_name())
    mount: Object = {"name": volume, "readOnly": True, "mountPath": MOUNT_PATH}
    is_needed = False
    for field, _ in _CONTAINERS:
        containers = cast("list[Object]", spec.get(field) or [])
        mounted: list[Object] = []
        for container in containers:
            mounts = cast("list[Object]", container.get("volumeMounts") or [])
            if any(each.get("mountPath") == MOUNT_PATH for each in mounts):
                mounted.append(container)
                continue
            is_needed = True
            mounted.append({**container, "volumeMounts": [*mounts, mount]})
        if containers:
            spec = {**spec, field: mounted}
    if is_needed and not name:
        spec = {**spec, "volumes": [*volumes, {"name": volume, "projected": TOKEN_SOURCE}]}
    return {**pod, "spec": spec}


def _check_mirror(admission: Admission) -> None:
    spec = cast("Object", admission.new["spec"])
    if spec.get("serviceAccountName"):
        raise refused(admission, "a mirror pod may not reference service accounts")
    if any(True for _ in secret_names(spec)):
        raise refused(admission, "a mirror pod may not reference secrets")
    for volume in cast("list[Object]", spec.get("volumes") or []):
        sources = cast("list[Object]", find_at(volume, "projected", "sources") or [])
        if any(each.get("serviceAccountToken") is not None for each in sources):
            why = "a mirror pod may not use ServiceAccountToken volume projections"
            raise refused(admission, why)


# Where volume sources name a Secret beside `secret` and `projected`.
_SECRET_FIELDS: Final = (
    ("azureFile", "secretName"),
    ("cephfs", "secretRef", "name"),
    ("cinder", "secretRef", "name"),
    ("csi", "nodePublishSecretRef", "name"),
    ("flexVolume", "secretRef", "name"),
    ("iscsi", "secretRef", "name"),
    ("rbd", "secretRef", "name"),
    ("scaleIO", "secretRef", "name"),
    ("secret", "secretName"),
    ("storageos", "secretRef", "name"),
)


def secret_names(spec: Object) -> Iterator[str]:
    """Return every Secret that a pod names."""
    for reference in cast("list[Object]", spec.get("imagePullSecrets") or []):
        yield str(reference.get("name") or "")
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in cast("list[Object]", spec.get(field) or []):
            for source in cast("list[Object]", container.get("envFrom") or []):
                if source.get("secretRef") is not None:
                    yield str(find_at(source, "secretRef", "name") or "")
            for variable in cast("list[Object]", container.get("env") or []):
                if find_at(variable, "valueFrom", "secretKeyRef") is not None:
                    yield str(find_at(variable, "valueFrom", "secretKeyRef", "name") or "")
    for volume in cast("list[Object]", spec.get("volumes") or []):
        for path in _SECRET_FIELDS:
            if name := find_at(volume, *path):
                yield str(name)
        for source in cast("list[Object]", find_at(volume, "projected", "sources") or []):
            if source.get("secret") is not None:
                yield str(find_at(source, "secret", "name") or "")


def _unlisted_secrets(
    pod: Object, account: Object, fields: tuple[tuple[str, str], ...]
) -> Iterator[str]:
    """Return why a pod may not name the secrets it names, in the order Kubernetes finds them."""
    spec, owner = cast("Object", pod["spec"]), name_of(account)
    listed = {each.get("name") for each in cast("list[Object]", account.get("secrets") or [])}
    unlisted = f"is not allowed because service account {owner} does not reference that"
    is_debugged = fields[0][0] == "ephemeralContainers"
    for volume in () if is_debugged else cast("list[Object]", spec.get("volumes") or []):
        if volume.get("secret") is not None:
            name = find_at(volume, "secret", "secretName") or ""
            if name not in listed:
                yield f'volume with secret.secretName="{name}" {unlisted} secret'
    for field, noun in fields:
        for container in cast("list[Object]", spec.get(field) or []):
            subject = f"{noun} {container.get('name')} with"
            for variable in cast("list[Object]", container.get("env") or []):
                if find_at(variable, "valueFrom", "secretKeyRef") is None:
                    continue
                name = find_at(variable, "valueFrom", "secretKeyRef", "name") or ""
                if name not in listed:
                    yield (
                        f"{subject} envVar {variable.get('name')} referencing "
                        f'secret.secretName="{name}" {unlisted} secret'
                    )
            for source in cast("list[Object]", container.get("envFrom") or []):
                if source.get("secretRef") is None:
                    continue
                name = find_at(source, "secretRef", "name") or ""
                if name not in listed:
                    yield (
                        f'{subject} envFrom referencing secret.secretName="{name}" '
                        f"{unlisted} secret"
                    )
    pullable = {
        each.get("name") for each in cast("list[Object]", account.get("imagePullSecrets") or [])
    }
    references = [] if is_debugged else cast("list[Object]", spec.get("imagePullSecrets") or [])
    for index, reference in enumerate(references):
        name = reference.get("name") or ""
        if name not in pullable:
            yield f'imagePullSecrets[{index}].name="{name}" {unlisted} imagePullSecret'
