"""Defaults of storage: volumes, claims, storage classes and CSI drivers."""

from typing import Final

from clusterspace.builtins.defaults.rules import Rules, in_sequence, missing, rounded, within

_CORE: Final = "io.k8s.api.core.v1"
_STORAGE: Final = "io.k8s.api.storage.v1"

_PENDING: Final = missing(phase="Pending")

RULES: Final[Rules] = {
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
