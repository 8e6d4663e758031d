"""Defaults of pods and storage: containers, probes, volumes, claims, classes, CSI drivers."""

from typing import Final, cast

from clusterspace.builtins import pods
from clusterspace.builtins.defaults.rules import (
    Rules,
    in_sequence,
    missing,
    rounded,
    rule_for,
    with_missing,
    within,
)
from clusterspace.kube.objects import Object

_CORE: Final = "io.k8s.api.core.v1"
_STORAGE: Final = "io.k8s.api.storage.v1"

_MODE_0644: Final = 0o644
_AN_HOUR: Final = 3600

_PROBE: Final = missing(timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
_RBD: Final = missing(pool="rbd", user="admin", keyring="/etc/ceph/keyring")
_ISCSI: Final = missing(iscsiInterface="default")
_SCALE_IO: Final = missing(storageMode="ThinProvisioned", fsType="xfs")
_AZURE_DISK: Final = missing(cachingMode="ReadWrite", fsType="ext4", readOnly=False, kind="Shared")
_FILE_MODE: Final = missing(defaultMode=_MODE_0644)
_PENDING: Final = missing(phase="Pending")
_POD_SPEC: Final = missing(
    restartPolicy="Always",
    terminationGracePeriodSeconds=30,
    dnsPolicy="ClusterFirst",
    securityContext={},
    schedulerName="default-scheduler",
)

RULES: Final[Rules] = {
    f"{_CORE}.PodSpec": in_sequence(_POD_SPEC, rounded("overhead")),
    f"{_CORE}.ContainerPort": missing(protocol="TCP"),
    f"{_CORE}.ContainerStatus": rounded("allocatedResources"),
    f"{_CORE}.ResourceRequirements": rounded("limits", "requests"),
    f"{_CORE}.Probe": _PROBE,
    f"{_CORE}.HTTPGetAction": missing(path="/", scheme="HTTP"),
    f"{_CORE}.GRPCAction": missing(service=""),
    f"{_CORE}.ObjectFieldSelector": missing(apiVersion="v1"),
    f"{_CORE}.FileKeySelector": missing(optional=False),
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
    # A volume's spec is filled in only in a volume: a VolumeAttachment holds one as it was given.
    f"{_CORE}.PersistentVolume": in_sequence(
        within("status", _PENDING),
        within("spec", missing(persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")),
    ),
    f"{_CORE}.PersistentVolumeSpec": rounded("capacity"),
    f"{_CORE}.PersistentVolumeClaim": within("status", _PENDING),
    f"{_CORE}.PersistentVolumeClaimSpec": missing(volumeMode="Filesystem"),
    f"{_CORE}.PersistentVolumeClaimStatus": rounded("capacity", "allocatedResources"),
    f"{_CORE}.VolumeResourceRequirements": rounded("limits", "requests"),
    f"{_STORAGE}.StorageClass": missing(reclaimPolicy="Delete", volumeBindingMode="Immediate"),
    f"{_STORAGE}.CSIDriverSpec": missing(
        attachRequired=True,
        podInfoOnMount=False,
        volumeLifecycleModes=["Persistent"],
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        requiresRepublish=False,
        seLinuxMount=False,
    ),
}


def image_pull_policy(image: str) -> str:
    """Return how an image is pulled when nobody said: a moving tag is pulled every time."""
    name, _, digest = image.partition("@")
    _, colon, tag = name.rpartition("/")[2].partition(":")
    is_latest = tag == "latest" if colon else not digest
    return "Always" if is_latest else "IfNotPresent"


@rule_for(RULES, f"{_CORE}.Container", f"{_CORE}.EphemeralContainer")
def fill_container(container: Object) -> Object:
    """Say how the image is pulled, and where the container leaves its last words."""
    return with_missing(
        container,
        {
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": image_pull_policy(str(container.get("image", ""))),
        },
    )


@rule_for(RULES, f"{_CORE}.Pod")
def fill_pod(pod: Object) -> Object:
    """Complete what the containers of a pod ask for: in a template, these are left alone."""
    spec = cast("Object", pod.get("spec") or {})
    filled: Object = {**spec}
    for field in ("containers", "initContainers"):
        if containers := cast("list[Object]", spec.get(field) or []):
            containers = [_requests_from_limits(each) for each in containers]
            if spec.get("hostNetwork"):
                containers = [_host_ports(each) for each in containers]
            filled[field] = containers
    if filled.get("enableServiceLinks") is None:
        filled["enableServiceLinks"] = True
    if spec.get("resources"):
        filled["resources"] = _pod_level_resources(filled)
    return pod if filled == spec else {**pod, "spec": filled}


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
    huge = pods.effective(spec, "limits")
    limits = {
        **{key: text for key, text in huge.items() if _is_huge(key) and key not in requests},
        **limits,
    }
    if limits:
        from_limits = {
            key: text for key, text in limits.items() if key in ("cpu", "memory") or _is_huge(key)
        }
        asked = pods.effective(spec, "requests")
        from_containers = {key: text for key, text in asked.items() if key in ("cpu", "memory")}
        requests = {**from_limits, **from_containers, **requests}
    completed = {**resources, "limits": limits, "requests": requests}
    return {key: text for key, text in completed.items() if text}


def _is_huge(resource: str) -> bool:
    return resource.startswith("hugepages-")


@rule_for(RULES, f"{_CORE}.Volume")
def fill_volume(volume: Object) -> Object:
    """Make a volume that says nothing an empty directory."""
    if not volume.keys() - {"name"}:
        return {**volume, "emptyDir": {}}
    image = volume.get("image")
    if image is None or image.get("pullPolicy"):
        return volume
    policy = image_pull_policy(str(image.get("reference", "")))
    return {**volume, "image": {**image, "pullPolicy": policy}}
