"""How agents and the components of the control plane are named at the hub: each logs in as itself.

Who issues a name, who scopes it and who runs under it must agree. The role and the binding of a
component have its name too, as those of kube-controller-manager do.
"""

from dataclasses import dataclass
from typing import Final

from clusterspace.errors import BadRequest
from clusterspace.kube.objects import Object, find_at

COMPONENT_USER_PREFIX: Final = "system:clusterspace-"
"""What the user names of all components begin with; nobody but the hub gives them away."""

FLEET_USER: Final = "system:clusterspace-fleet"
CONTROLLERS_USER: Final = "system:clusterspace-controllers"

CONTROLLERS_ON_MEMBERS: Final = "clusterspace:controllers"
"""Who the controllers are on a Pull member, which they read metrics of; see `MetricsReaders`."""

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

INSTALLER_USER: Final = AGENT_USER_PREFIX + NOT_A_CLUSTER
"""Who `karmadactl register` asks to be, to write the roles of an agent."""


# -- which leadership a write belongs to: a header of the request ----------------------------------
#
#     Clusterspace-Leader: kube-system/clusterspace-controllers 7 host1_4711_9f3c
#
# A process that was frozen for longer than its lease lasts still believes that it leads, and no
# clock of its own can say so in the moment between its last check and its write. So the hub
# compares the header with the Lease at the moment of the write, refuses it once the leadership has
# ended, and says in the answer that it has compared:
#
#     Clusterspace-Leader-Checked: 7
#
# A server that does not know the header ignores it; who wrote sees no such answer, and looks at the
# Lease himself before each write.

LEADER_HEADER: Final = "Clusterspace-Leader"
CHECKED_HEADER: Final = "Clusterspace-Leader-Checked"

_LONGEST: Final = 512


@dataclass(frozen=True, slots=True)
class Leadership:
    """One holding of a Lease, from when it was claimed until it is somebody else's."""

    namespace: str
    name: str
    epoch: int
    """How often the Lease had changed hands: grows with every new leader."""
    holder: str

    @property
    def header(self) -> str:
        """The value of the header."""
        return f"{self.namespace}/{self.name} {self.epoch} {self.holder}"

    def holds(self, lease: Object | None) -> bool:
        """Whether a Lease is in the hands of this holder, and has been since this epoch."""
        if lease is None:
            return False
        epoch = find_at(lease, "spec", "leaseTransitions") or 0
        return (epoch, find_at(lease, "spec", "holderIdentity")) == (self.epoch, self.holder)


def read_leadership(header: str) -> Leadership:
    """Read the header of a write; BadRequest when it is none of ours."""
    path, _, rest = header.partition(" ")
    epoch, _, holder = rest.partition(" ")
    namespace, _, name = path.partition("/")
    # Digits of our own alphabet: `isdecimal` and `int` know others, too.
    is_number = epoch.isascii() and epoch.isdecimal() and len(epoch) < 16
    is_named = bool(namespace and holder) and bool(name) and "/" not in name
    if len(header) > _LONGEST or not is_number or not is_named:
        raise BadRequest(f"{LEADER_HEADER} must be NAMESPACE/NAME EPOCH HOLDER of a Lease")
    return Leadership(namespace, name, int(epoch), holder)
