"""Claims for storage, which is always there: a claim is bound as soon as it is made."""

from clusterspace.kube.objects import Object, find_at, uid_of, with_value
from clusterspace.sim.pod_states import is_ending
from clusterspace.sim.workloads.plans import Plan, with_status


def plan_claim(claim: Object) -> Plan:
    """Give a claim a volume of its own, first by name, then in its status."""
    if is_ending(claim) or find_at(claim, "status", "phase") == "Bound":
        return Plan()
    if not find_at(claim, "spec", "volumeName"):
        return Plan(update=(with_value(claim, f"pvc-{uid_of(claim)}", "spec", "volumeName"),))
    status: Object = {
        "phase": "Bound",
        "accessModes": find_at(claim, "spec", "accessModes"),
        "capacity": find_at(claim, "spec", "resources", "requests"),
    }
    return Plan(status=with_status(claim, status))
