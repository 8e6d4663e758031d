"""MemberClusters and InternalMemberClusters for unit tests."""

from typing import Any

from clusterspace.kube.objects import Object

SINCE = "2026-01-01T00:00:00Z"


def condition(kind: str, status: str, generation: int = 1, message: str = "") -> Object:
    """Return a condition somebody set before."""
    return {
        "type": kind,
        "status": status,
        "reason": "Told",
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": SINCE,
    }


def member_cluster(*, generation: int = 3, period: int = 60, **parts: Any) -> Object:
    """Return a MemberCluster as the hub holds it."""
    metadata = {"name": "west", "uid": "uid-1", "generation": generation}
    identity = {"kind": "User", "name": "jane"}
    return {
        "apiVersion": "cluster.kubernetes-fleet.io/v1beta1",
        "kind": "MemberCluster",
        "metadata": {**metadata, **parts.get("metadata", {})},
        "spec": {"identity": identity, "heartbeatPeriodSeconds": period, **parts.get("spec", {})},
        "status": parts.get("status", {}),
    }


def internal(
    joined: str = "", *, generation: int = 1, heartbeat: str = SINCE, **parts: Any
) -> Object:
    """Return an InternalMemberCluster whose agent said this; nothing at all when it is empty."""
    told = [condition("Joined", joined, generation, parts.get("message", ""))] if joined else []
    agent = {"type": "MemberAgent", "conditions": told, "lastReceivedHeartbeat": heartbeat}
    status = {"agentStatus": [agent]} if joined else {}
    return {
        "metadata": {"name": "west", "generation": generation, "uid": "uid-2"},
        "spec": {"state": parts.get("state", "Join"), "heartbeatPeriodSeconds": 60},
        "status": {**status, **parts.get("status", {})},
    }
