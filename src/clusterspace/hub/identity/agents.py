"""How the agent of a cluster is named: Karmada's names, so that Karmada's roles fit."""

from typing import Final

from clusterspace.kube.names import dns1123_label_problems

AGENTS: Final = "system:karmada:agents"
"""The group every agent is in, and the only one."""

AGENT_SIGNER: Final = "clusterspace.io/agent"
"""Signs for agents and for nobody else."""

_PREFIX: Final = "system:karmada:agent:"
_NOT_A_CLUSTER: Final = "rbac-generator"
"""What follows the prefix in the name of Karmada's installer, which may do everything."""


def agent_user(cluster: str) -> str:
    """Return the user name of a cluster's agent."""
    return _PREFIX + cluster


def cluster_of_agent(username: str, groups: tuple[str, ...]) -> str:
    """Return the cluster whose agent a user is; empty for everybody else."""
    if AGENTS not in groups or not username.startswith(_PREFIX):
        return ""
    cluster = username.removeprefix(_PREFIX)
    return cluster if is_cluster_name(cluster) else ""


def is_cluster_name(name: str) -> bool:
    """Whether a cluster may have this name and an agent of its own."""
    return not dns1123_label_problems(name) and name != _NOT_A_CLUSTER
