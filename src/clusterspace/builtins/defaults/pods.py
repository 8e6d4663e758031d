"""Defaults of pods: their spec, containers, probes and volumes."""

from typing import Final, cast

from clusterspace.builtins import resource_lists
from clusterspace.builtins.defaults.rules import Rules, in_sequence, missing, rounded, with_missing
from clusterspace.kube.objects import Object

_CORE: Final = "io.k8s.api.core.v1"

_MODE_0644: Final = 0o644
_AN_HOUR: Final = 3600


def image_pull_policy(image: str) -> str:
    """Return how an image is pulled when nobody said: a moving tag is pulled every time."""
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    is_latest = tag == "latest" if colon else not digest
    return "Always" if is_latest else "IfNotPresent"


def _container(container: Object) -> Object:
    return with_missing(
        container,
        {
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": image_pull_policy(str(container.get("image", ""))),
        },
    )


_POD_SPEC: Final = missing(
    restartPolicy="Always",
    terminationGracePeriodSeconds=30,
    dnsPolicy="ClusterFirst",
    securityContext={},
    schedulerName="default-scheduler",
)


def _pod(pod: Object) -> Object:
    spec = cast("Object", pod.get("spec") or {})
    filled: Object = {**spec}
    for field in ("containers", "initContainers"):
        if containers := cast("list[Object]", spec.get(field) or []):
            filled[field] = _pod_containers(containers, bool(spec.get("hostNetwork")))
    if filled.get("enableServiceLinks") is None:
        filled["enableServiceLinks"] = True
    if spec.get("resources"):
        filled["resources"] = _pod_level_resources(filled)
    return pod if filled == spec else {**pod, "spec": filled}


def _pod_containers(containers: list[Object], is_on_host_network: bool) -> list[Object]:
    filled = [_requests_from_limits(container) for container in containers]
    return [_host_ports(each) for each in filled] if is_on_host_network else filled


def _requests_from_limits(container: Object) -> Object:
    """Ask for as much as the limit allows, where a pod's container does not say what it asks."""
    resources = cast("Object", container.get("resources") or {})
    limits = cast("Object", resources.get("limits") or {})
    requests = cast("Object", resources.get("requests") or {})
    if not limits.keys() - requests.keys():
        return container
    return {**container, "resources": {**resources, "requests": {**limits, **requests}}}


def _host_ports(container: Object) -> Object:
    ports = cast("list[Object]", container.get("ports") or [])
    if not ports:
        return container
    on_host = [
        {**port, "hostPort": port.get("hostPort") or port["containerPort"]} for port in ports
    ]
    return {**container, "ports": on_host}


def _pod_level_resources(spec: Object) -> Object:
    """Complete what the pod as a whole asks for from what its containers and limits say."""
    resources = cast("Object", spec["resources"])
    limits = cast("Object", resources.get("limits") or {})
    requests = cast("Object", resources.get("requests") or {})
    if not limits and not requests:
        return resources
    huge = resource_lists.effective(spec, "limits")
    limits = {
        **{key: held for key, held in huge.items() if _is_huge(key) and key not in requests},
        **limits,
    }
    if limits:
        from_limits = {key: held for key, held in limits.items() if _is_pod_level(key)}
        asked = resource_lists.effective(spec, "requests")
        from_containers = {key: held for key, held in asked.items() if key in ("cpu", "memory")}
        requests = {**from_limits, **from_containers, **requests}
    completed = {**resources, "limits": limits, "requests": requests}
    return {key: held for key, held in completed.items() if held}


def _is_huge(resource: str) -> bool:
    return resource.startswith("hugepages-")


def _is_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or _is_huge(resource)


_VOLUME_NAME: Final = "name"


def _volume(volume: Object) -> Object:
    if not volume.keys() - {_VOLUME_NAME}:
        return {**volume, "emptyDir": {}}
    image = volume.get("image")
    if image is None or image.get("pullPolicy"):
        return volume
    policy = image_pull_policy(str(image.get("reference", "")))
    return {**volume, "image": {**image, "pullPolicy": policy}}


_PROBE: Final = missing(timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
_RBD: Final = missing(pool="rbd", user="admin", keyring="/etc/ceph/keyring")
_ISCSI: Final = missing(iscsiInterface="default")
_SCALE_IO: Final = missing(storageMode="ThinProvisioned", fsType="xfs")
_AZURE_DISK: Final = missing(cachingMode="ReadWrite", fsType="ext4", readOnly=False, kind="Shared")
_FILE_MODE: Final = missing(defaultMode=_MODE_0644)

RULES: Final[Rules] = {
    f"{_CORE}.Pod": _pod,
    f"{_CORE}.PodSpec": in_sequence(_POD_SPEC, rounded("overhead")),
    f"{_CORE}.Container": _container,
    f"{_CORE}.EphemeralContainer": _container,
    f"{_CORE}.ContainerPort": missing(protocol="TCP"),
    f"{_CORE}.ContainerStatus": rounded("allocatedResources"),
    f"{_CORE}.ResourceRequirements": rounded("limits", "requests"),
    f"{_CORE}.Probe": _PROBE,
    f"{_CORE}.HTTPGetAction": missing(path="/", scheme="HTTP"),
    f"{_CORE}.GRPCAction": missing(service=""),
    f"{_CORE}.ObjectFieldSelector": missing(apiVersion="v1"),
    f"{_CORE}.FileKeySelector": missing(optional=False),
    f"{_CORE}.Volume": _volume,
    f"{_CORE}.HostPathVolumeSource": missing(type=""),
    f"{_CORE}.SecretVolumeSource": _FILE_MODE,
    f"{_CORE}.ConfigMapVolumeSource": _FILE_MODE,
    f"{_CORE}.DownwardAPIVolumeSource": _FILE_MODE,
    f"{_CORE}.ProjectedVolumeSource": _FILE_MODE,
    f"{_CORE}.ServiceAccountTokenProjection": missing(expirationSeconds=_AN_HOUR),
    f"{_CORE}.RBDVolumeSource": _RBD,
    f"{_CORE}.RBDPersistentVolumeSource": _RBD,
    f"{_CORE}.ISCSIVolumeSource": _ISCSI,
    f"{_CORE}.ISCSIPersistentVolumeSource": _ISCSI,
    f"{_CORE}.ScaleIOVolumeSource": _SCALE_IO,
    f"{_CORE}.ScaleIOPersistentVolumeSource": _SCALE_IO,
    f"{_CORE}.AzureDiskVolumeSource": _AZURE_DISK,
}
