"""How agents are named: who issues the name, who scopes it and who asks for it must agree."""

from typing import Final

AGENTS: Final = "system:karmada:agents"
"""The group every agent is in, and the only one."""

AGENT_USER_PREFIX: Final = "system:karmada:agent:"
"""What stands before the cluster's name in the user name of its agent."""

AGENT_SIGNER: Final = "clusterspace.io/agent"
"""Signs for agents and for nobody else."""

REGISTRATION_GROUP: Final = "system:bootstrappers:karmada:default-cluster-token"
"""Karmada's group for tokens that register clusters: its roles let it ask for a certificate."""

NOT_A_CLUSTER: Final = "rbac-generator"
"""What follows the prefix in the name of Karmada's installer, which may do everything."""
