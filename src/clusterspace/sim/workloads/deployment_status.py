"""What a Deployment says of itself: counts, and the conditions `rollout status` reads."""

from typing import Final

from clusterspace.kube.conditions import Condition, set_condition
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of
from clusterspace.kube.timestamps import format_time, parse_time
from clusterspace.sim.workloads.deployment_parts import Rollout

_DEFAULT_DEADLINE: Final = 600


def deployment_status(rollout: Rollout, now: float) -> Object:
    """Return the status a Deployment should have now."""
    counted = {
        field: sum(find_at(each, "status", field) or 0 for each in rollout.everything)
        for field in ("replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")
    }
    updated = 0 if rollout.new is None else find_at(rollout.new, "status", "replicas") or 0
    available = counted["availableReplicas"]
    total = max(rollout.wanted, counted["replicas"])
    status: Object = {
        **counted,
        "updatedReplicas": updated,
        "unavailableReplicas": max(0, total - available),
        "observedGeneration": metadata_of(rollout.deployment).get("generation"),
        "collisionCount": find_at(rollout.deployment, "status", "collisionCount"),
    }
    return {**status, "conditions": _conditions(rollout, status, now)}


def _conditions(rollout: Rollout, status: Object, now: float) -> list[Object]:
    stamp = format_time(now)
    held: list[Object] = find_at(rollout.deployment, "status", "conditions") or []
    edited = held
    for wanted in (_available(rollout, status), _progressing(rollout, status, now)):
        edited = set_condition(edited, wanted, now).conditions
    return [_updated(each, held, stamp) for each in edited]


def _updated(condition: Object, held: list[Object], stamp: str) -> Object:
    """Add when a condition was last said anew, which Deployments tell beside its transition."""
    same = next((each for each in held if _said(each) == _said(condition)), None)
    return {**condition, "lastUpdateTime": stamp if same is None else same["lastUpdateTime"]}


def _said(condition: Object) -> tuple[str, ...]:
    return tuple(str(condition.get(key)) for key in ("type", "status", "reason", "message"))


def _available(rollout: Rollout, status: Object) -> Condition:
    if status["availableReplicas"] >= rollout.wanted - rollout.limits.unavailable:
        says = "Deployment has minimum availability."
        return Condition("Available", "True", "MinimumReplicasAvailable", says)
    says = "Deployment does not have minimum availability."
    return Condition("Available", "False", "MinimumReplicasUnavailable", says)


def _progressing(rollout: Rollout, status: Object, now: float) -> Condition:
    if rollout.is_paused:
        says = "Deployment is paused"
        return Condition("Progressing", "Unknown", "DeploymentPaused", says)
    if rollout.new is None:
        says = f'Created new replica set for "{name_of(rollout.deployment)}"'
        return Condition("Progressing", "True", "NewReplicaSetCreated", says)
    name = name_of(rollout.new)
    if _is_complete(rollout, status):
        says = f'ReplicaSet "{name}" has successfully progressed.'
        return Condition("Progressing", "True", "NewReplicaSetAvailable", says)
    if _overdue(rollout, status, now):
        says = f'ReplicaSet "{name}" has timed out progressing.'
        return Condition("Progressing", "False", "ProgressDeadlineExceeded", says)
    return Condition("Progressing", "True", "ReplicaSetUpdated", _progress_of(name, status))


def _progress_of(name: str, status: Object) -> str:
    """Say how far it is; a new sentence is what moves `lastUpdateTime`, and so the deadline."""
    ready = status["availableReplicas"]
    return (
        f'ReplicaSet "{name}" is progressing: {status["updatedReplicas"]} updated, '
        f"{ready} available, {status['replicas']} in all."
    )


def _is_complete(rollout: Rollout, status: Object) -> bool:
    return (
        status["updatedReplicas"] == rollout.wanted
        and status["replicas"] == rollout.wanted
        and status["availableReplicas"] == rollout.wanted
    )


def _overdue(rollout: Rollout, status: Object, now: float) -> bool:
    held: list[Object] = find_at(rollout.deployment, "status", "conditions") or []
    last = next((each for each in held if each.get("type") == "Progressing"), None)
    if last is None or rollout.new is None:
        return False
    if last.get("reason") == "ProgressDeadlineExceeded":
        return last.get("message", "").startswith(f'ReplicaSet "{name_of(rollout.new)}"')
    if last.get("reason") != "ReplicaSetUpdated":
        return False
    is_stuck = last.get("message") == _progress_of(name_of(rollout.new), status)
    return is_stuck and now - parse_time(str(last["lastUpdateTime"])) >= _deadline(rollout)


def _deadline(rollout: Rollout) -> int:
    given = find_at(rollout.deployment, "spec", "progressDeadlineSeconds")
    return _DEFAULT_DEADLINE if given is None else int(given)


def until_deadline(rollout: Rollout, now: float) -> float | None:
    """Return when to look whether a rollout that does not move is overdue."""
    held: list[Object] = find_at(rollout.deployment, "status", "conditions") or []
    last = next((each for each in held if each.get("reason") == "ReplicaSetUpdated"), None)
    if last is None:
        return None
    return max(1.0, parse_time(str(last["lastUpdateTime"])) + _deadline(rollout) - now)
