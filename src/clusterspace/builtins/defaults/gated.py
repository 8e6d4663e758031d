"""Fields behind feature gates that are off by default: they are accepted and dropped.

Kubernetes 1.35 drops each of these from a new object. Keeping one would promise behaviour that no
member with default settings has.
"""

from typing import Final

from clusterspace.builtins.defaults.rules import Rule, Rules
from clusterspace.kube.objects import Object

_CORE: Final = "io.k8s.api.core.v1"
_DEVICES: Final = "io.k8s.api.resource.v1"


def _dropped(*fields: str) -> Rule:
    gated = frozenset(fields)

    def drop(struct: Object) -> Object:
        if gated.isdisjoint(struct):
            return struct
        return {key: held for key, held in struct.items() if key not in gated}

    return drop


RULES: Final[Rules] = {
    f"{_CORE}.Lifecycle": _dropped("stopSignal"),
    f"{_CORE}.NodeSpec": _dropped("configSource"),
    f"{_CORE}.NodeStatus": _dropped("config"),
    f"{_CORE}.PodSpec": _dropped("workloadRef"),
    "io.k8s.api.apps.v1.RollingUpdateStatefulSetStrategy": _dropped("maxUnavailable"),
    "io.k8s.api.coordination.v1.LeaseSpec": _dropped("preferredHolder", "strategy"),
    f"{_DEVICES}.Device": _dropped(
        "allNodes",
        "allowMultipleAllocations",
        "bindingConditions",
        "bindingFailureConditions",
        "bindsToNode",
        "consumesCounters",
        "nodeName",
        "nodeSelector",
        "taints",
    ),
    f"{_DEVICES}.DeviceCapacity": _dropped("requestPolicy"),
    f"{_DEVICES}.DeviceClassSpec": _dropped("extendedResourceName"),
    f"{_DEVICES}.DeviceSubRequest": _dropped("capacity", "tolerations"),
    f"{_DEVICES}.ExactDeviceRequest": _dropped("capacity", "tolerations"),
    f"{_DEVICES}.ResourceSliceSpec": _dropped("perDeviceNodeSelection", "sharedCounters"),
}
