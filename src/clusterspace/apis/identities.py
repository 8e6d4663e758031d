"""How agents and the components of the control plane are named at the hub: each logs in as itself.

Who issues a name, who scopes it and who runs under it must agree. The role and the binding of a
component have its name too, as those of kube-controller-manager do.
"""

from typing import Final

COMPONENT_USER_PREFIX: Final = "system:clusterspace-"
"""What the user names of all components begin with; nobody but the hub gives them away."""

FLEET_USER: Final = "system:clusterspace-fleet"
CONTROLLERS_USER: Final = "system:clusterspace-controllers"

CONTROLLERS_LEASE: Final = "clusterspace-controllers"
"""The Lease in `kube-system` that the controllers at work hold."""

COMPONENTS: Final = {"fleet": FLEET_USER, "controllers": CONTROLLERS_USER}
"""The components that work with the hub, by their verb on the command line."""


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
