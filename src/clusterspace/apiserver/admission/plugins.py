"""Every admission rule, in the order in which it is asked. A new one is a line in one of two lists.

`access_plugins` has the rules about what the writer may do, `hub_plugins` those about the object;
the first are asked first.
"""

from clusterspace.apiserver.access.authorizer import Access
from clusterspace.apiserver.admission.builtin_kinds import (
    CertificateSubjects,
    NamespaceLifecycle,
    ServiceAddresses,
)
from clusterspace.apiserver.admission.clusters import (
    ClusterRules,
    ClusterSecrets,
    MemberClusterRules,
)
from clusterspace.apiserver.admission.escalation import EscalationGuard
from clusterspace.apiserver.admission.propagation import (
    BindingRules,
    PermanentIds,
    PlacementRules,
    PolicyRules,
)
from clusterspace.apiserver.admission.rights import (
    AgentGuard,
    ComponentGuard,
    CreateRight,
    CredentialsRight,
    OwnerRight,
    TemplateRight,
)
from clusterspace.apiserver.admission.unenforced import UnenforcedKinds
from clusterspace.apiserver.state import Plugin
from clusterspace.client.endpoints import AddressRules


def access_plugins(access: Access) -> tuple[Plugin, ...]:
    """Return the rules about rights. They come first: who may not write learns nothing else."""
    authorizer = access.authorizer
    return (
        CreateRight(authorizer),
        AgentGuard(),
        CredentialsRight(authorizer),
        OwnerRight(authorizer),
        ComponentGuard(),
        EscalationGuard(authorizer, access.role_cache),
        TemplateRight(authorizer),
    )


def hub_plugins(
    access: Access, members: AddressRules, unenforced: UnenforcedKinds
) -> tuple[Plugin, ...]:
    """Return all rules; `members` says where members may be, `unenforced` words the warnings."""
    return (
        *access_plugins(access),
        NamespaceLifecycle(),
        CertificateSubjects(),
        ServiceAddresses(),
        MemberClusterRules(),  # before ClusterRules: it may make a Cluster somebody's
        ClusterRules(members),
        ClusterSecrets(),
        PlacementRules(),
        PolicyRules(),
        BindingRules(),
        PermanentIds(),
        unenforced,  # last: a warning is for who has not been refused
    )
