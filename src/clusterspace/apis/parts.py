"""How the parts of the control plane are named at the hub: each logs in as itself.

Who issues the names, who scopes them and who runs under them must agree. The role and the binding
of a part have its name too, as those of kube-controller-manager do.
"""

from typing import Final

PART_USER_PREFIX: Final = "system:clusterspace-"
"""What the user names of all parts begin with; nobody but the hub gives them away."""

FLEET_USER: Final = "system:clusterspace-fleet"
CONTROLLERS_USER: Final = "system:clusterspace-controllers"

CONTROLLERS_LEASE: Final = "clusterspace-controllers"
"""The Lease in `kube-system` that the controllers at work hold."""

PARTS: Final = {"fleet": FLEET_USER, "controllers": CONTROLLERS_USER}
"""The parts that work with the hub, by their verb on the command line."""
