"""Taints and tolerations: who may go where, by the rules that Pods and Nodes have."""

from clusterspace.kube.objects import Object


def tolerates(toleration: Object, taint: Object) -> bool:
    """Tell whether a toleration is for a taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    has_key = bool(toleration.get("key"))
    return has_key and (toleration.get("value") or "") == (taint.get("value") or "")
