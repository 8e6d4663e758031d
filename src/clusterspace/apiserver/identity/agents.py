"""How the agent of a cluster is named: Karmada's names, so that Karmada's roles fit."""

from clusterspace.apis.agents import AGENT_USER_PREFIX, AGENTS, NOT_A_CLUSTER
from clusterspace.kube.names import dns1123_label_problems


def agent_user(cluster: str) -> str:
    """Return the user name of a cluster's agent."""
    return AGENT_USER_PREFIX + cluster


def cluster_of_agent(username: str, groups: tuple[str, ...]) -> str:
    """Return the cluster whose agent a user is; empty for everybody else."""
    if AGENTS not in groups or not username.startswith(AGENT_USER_PREFIX):
        return ""
    cluster = username.removeprefix(AGENT_USER_PREFIX)
    return cluster if is_cluster_name(cluster) else ""


def is_cluster_name(name: str) -> bool:
    """Whether a cluster may have this name and an agent of its own."""
    return not dns1123_label_problems(name) and name != NOT_A_CLUSTER
