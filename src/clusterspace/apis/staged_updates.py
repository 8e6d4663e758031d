"""Staged update runs, their strategies and approval requests: names, and how to read them.

    ClusterStagedUpdateRun ──placementName──> ClusterResourcePlacement of strategy External
    StagedUpdateRun        ──placementName──> ResourcePlacement of its own namespace

Names, labels and states are KubeFleet's, letter for letter.
"""

from dataclasses import dataclass
from typing import Final

from clusterspace.apis.fleet_placements import (
    API_VERSION,
    CLUSTER_WIDE,
    GROUP,
    NAMESPACED,
    PlacementScope,
)
from clusterspace.kube.conditions import FALSE, TRUE, find_condition, is_true
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, namespace_of, uid_of
from clusterspace.kube.resources import GroupVersionResource

INITIALIZE: Final = "Initialize"
RUN: Final = "Run"
STOP: Final = "Stop"

TIMED_WAIT: Final = "TimedWait"
APPROVAL: Final = "Approval"
APPROVED: Final = "Approved"

INITIALIZED: Final = "Initialized"
PROGRESSING: Final = "Progressing"
SUCCEEDED: Final = "Succeeded"

RECORD: Final = "progress"
"""`update` on `clusterstagedupdateruns/progress`: the right to say what runs did; no URL."""

DELETE_STAGE: Final = "kubernetes-fleet.io/deleteStage"

_RUN_LABEL: Final = "kubernetes-fleet.io/targetUpdateRun"
_STAGE_LABEL: Final = "kubernetes-fleet.io/targetUpdatingStage"
_TASK_LABEL: Final = "kubernetes-fleet.io/taskType"
_LATEST_LABEL: Final = "kubernetes-fleet.io/isLatestUpdateRunApproval"


@dataclass(frozen=True, slots=True)
class StagedScope:
    """The kinds of staged updates for one kind of placement."""

    run: str
    approval: str
    runs: GroupVersionResource
    strategies: GroupVersionResource
    approvals: GroupVersionResource
    placements: PlacementScope


CLUSTER_RUNS: Final = StagedScope(
    "ClusterStagedUpdateRun",
    "ClusterApprovalRequest",
    GroupVersionResource(GROUP, "v1beta1", "clusterstagedupdateruns"),
    GroupVersionResource(GROUP, "v1beta1", "clusterstagedupdatestrategies"),
    GroupVersionResource(GROUP, "v1beta1", "clusterapprovalrequests"),
    CLUSTER_WIDE,
)
NAMESPACED_RUNS: Final = StagedScope(
    "StagedUpdateRun",
    "ApprovalRequest",
    GroupVersionResource(GROUP, "v1beta1", "stagedupdateruns"),
    GroupVersionResource(GROUP, "v1beta1", "stagedupdatestrategies"),
    GroupVersionResource(GROUP, "v1beta1", "approvalrequests"),
    NAMESPACED,
)
STAGED_SCOPES: Final = (CLUSTER_RUNS, NAMESPACED_RUNS)


def staged_scope_at(namespace: str) -> StagedScope:
    """Return which kind of run is in a namespace, or in none."""
    return NAMESPACED_RUNS if namespace else CLUSTER_RUNS


def placement_key_of(run: Object) -> str:
    """Return the key of the placement that a run updates."""
    name, namespace = str(find_at(run, "spec", "placementName") or ""), namespace_of(run)
    return f"{namespace}/{name}" if namespace else name


def run_state_of(run: Object) -> str:
    """Return what is asked of a run: to be initialized, to run, or to stop."""
    return str(find_at(run, "spec", "state") or INITIALIZE)


def is_initialized(run: Object) -> bool:
    """Whether it is written down which clusters are updated in which stage."""
    return is_true(find_at(run, "status", "conditions"), INITIALIZED)


def is_over(run: Object) -> bool:
    """Whether nothing more comes of a run: it succeeded, failed, or could not be initialized."""
    conditions = find_at(run, "status", "conditions")
    initialized = find_condition(conditions, INITIALIZED) or {}
    succeeded = find_condition(conditions, SUCCEEDED) or {}
    return initialized.get("status") == FALSE or succeeded.get("status") in (TRUE, FALSE)


def has_begun(run: Object) -> bool:
    """Whether a run is to change clusters, or did."""
    conditions = find_at(run, "status", "conditions")
    return run_state_of(run) == RUN or find_condition(conditions, PROGRESSING) is not None


def is_newer(run: Object, than: Object) -> bool:
    """Whether a run was made after another.

    Of two of the same second one that is over was the first; names decide between the rest.
    """
    mine, others = (
        (str(metadata_of(each).get("creationTimestamp") or ""), not is_over(each), name_of(each))
        for each in (run, than)
    )
    return mine > others


def snapshot_index_used(run: Object) -> int | None:
    """Return the number of the resource snapshot that a run brings, once it is known."""
    text = str(find_at(run, "status", "resourceSnapshotIndexUsed") or "")
    return int(text) if text.isdigit() else None


def is_approved(request: Object) -> bool:
    """Whether somebody approved a request as it is now."""
    condition = find_condition(find_at(request, "status", "conditions"), APPROVED) or {}
    observed = condition.get("observedGeneration")
    is_current = observed is None or observed == metadata_of(request).get("generation")
    return condition.get("status") == TRUE and is_current


def approval_name(run: str, stage: str, *, is_before: bool) -> str:
    """Return the name of the request that a stage waits for."""
    return f"{run}-{'before' if is_before else 'after'}-{stage}"


def approval_request(run: Object, stage: str, *, is_before: bool) -> Object:
    """Return the request for approval of a stage; it goes with its run."""
    namespace = namespace_of(run)
    scope = staged_scope_at(namespace)
    return {
        "apiVersion": API_VERSION,
        "kind": scope.approval,
        "metadata": {
            "name": approval_name(name_of(run), stage, is_before=is_before),
            **({"namespace": namespace} if namespace else {}),
            "labels": {
                _RUN_LABEL: name_of(run),
                _STAGE_LABEL: stage,
                _TASK_LABEL: "beforeStage" if is_before else "afterStage",
                _LATEST_LABEL: "true",
            },
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": scope.run,
                    "name": name_of(run),
                    "uid": uid_of(run),
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {"parentStageRollout": name_of(run), "targetStage": stage},
    }
