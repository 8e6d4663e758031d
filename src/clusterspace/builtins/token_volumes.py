"""The volume by which a pod has the token of its ServiceAccount, as every API server mounts it."""

import re
from typing import Final, cast

from clusterspace.kube.objects import Object

PREFIX: Final = "kube-api-access-"
MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

_EXPIRATION_SECONDS: Final = 3607
"""An hour and a bit, which tells this token from those that somebody asked for."""

TOKEN_SOURCE: Final[Object] = {
    "defaultMode": 0o644,
    "sources": [
        {"serviceAccountToken": {"expirationSeconds": _EXPIRATION_SECONDS, "path": "token"}},
        {
            "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ],
}

_GENERATED: Final = re.compile(re.escape(PREFIX) + "[a-z0-9]{5}")
_MOUNT: Final[Object] = {"readOnly": True, "mountPath": MOUNT_PATH}
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def without_token_volume(pod: Object) -> Object:
    """Return a pod as it was before an API server mounted the token of its account into it.

    Every cluster mounts its own, under a name of its own. A pod that opts out of that, and one
    that has the volume in another way than an API server adds it, is left as it is: somebody wrote
    it so.
    """
    spec = cast("Object", pod.get("spec") or {})
    volumes = cast("list[Object]", spec.get("volumes") or [])
    added = {
        str(each["name"])
        for each in volumes
        if _GENERATED.fullmatch(str(each.get("name") or ""))
        and each == {"name": each["name"], "projected": TOKEN_SOURCE}
    }
    if not added or spec.get("automountServiceAccountToken") is False:
        return pod
    kept: Object = {key: value for key, value in spec.items() if key != "volumes"}
    if left := [each for each in volumes if each.get("name") not in added]:
        kept["volumes"] = left
    for field in _CONTAINERS:
        containers: list[Object] = []
        for container in cast("list[Object]", spec.get(field) or []):
            mounts = cast("list[Object]", container.get("volumeMounts") or [])
            others = [each for each in mounts if each.get("name") not in added]
            mounted = [each for each in mounts if each.get("name") in added]
            if any(each != {**_MOUNT, "name": each["name"]} for each in mounted):
                return pod
            bare: Object = {key: value for key, value in container.items() if key != "volumeMounts"}
            if others:
                bare["volumeMounts"] = others
            containers.append(bare if mounted else container)
        if containers:
            kept[field] = containers
    return {**pod, "spec": kept}
