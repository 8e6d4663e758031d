"""Every admission rule, in the order in which it is asked. A new one is a line in one of the lists.

`access_plugins` has the rules about what the writer may do, `kubernetes_plugins` those that every
cluster has, `hub_plugins` all and our own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from clusterspace.apiserver.access.authorizer import Access
from clusterspace.apiserver.admission.autoscalers import AutoscalerRules
from clusterspace.apiserver.admission.builtin_kinds import (
    CertificateSubjects,
    DefaultIngressClass,
    DefaultStorageClass,
    NamespaceLifecycle,
    PersistentVolumeClaimResize,
    ServiceAddresses,
    StorageObjectInUseProtection,
    TaintNodesByCondition,
)
from clusterspace.apiserver.admission.clusters import (
    ClusterRules,
    ClusterSecrets,
    MemberClusterRules,
)
from clusterspace.apiserver.admission.escalation import EscalationGuard
from clusterspace.apiserver.admission.federated_quotas import (
    FederatedQuotaEnforcement,
    FederatedQuotaRules,
)
from clusterspace.apiserver.admission.limit_ranges import LimitRanger
from clusterspace.apiserver.admission.mutating_policies import MutatingPolicies
from clusterspace.apiserver.admission.nodes import NodeRestriction
from clusterspace.apiserver.admission.pod_security import PodSecurity
from clusterspace.apiserver.admission.pods import (
    DefaultTolerationSeconds,
    Priority,
    RuntimeClass,
)
from clusterspace.apiserver.admission.propagation import (
    BindingRules,
    DeletionProtection,
    EnvelopeRules,
    FleetOverrideRules,
    InterpreterRules,
    PermanentIds,
    PlacementRules,
    PolicyRules,
    RegistryRules,
)
from clusterspace.apiserver.admission.quotas import ResourceQuota
from clusterspace.apiserver.admission.rights import (
    AgentGuard,
    ComponentGuard,
    CreateRight,
    CredentialsRight,
    OverrideRight,
    OwnerRight,
    RecordRight,
    TemplateRight,
)
from clusterspace.apiserver.admission.service_accounts import ServiceAccount
from clusterspace.apiserver.admission.services import ServiceRules
from clusterspace.apiserver.admission.unenforced import UnenforcedKinds
from clusterspace.apiserver.admission.validating_policies import ValidatingPolicies
from clusterspace.apiserver.admission.webhooks import MutatingWebhooks, ValidatingWebhooks
from clusterspace.apiserver.state import Plugin
from clusterspace.client.endpoints import AddressRules
from clusterspace.errors import UnknownPlugin


@dataclass(frozen=True, slots=True)
class AdmissionSwitches:
    """What kube-apiserver's flags say of plug-ins, by their names there."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()

    def applied_to(self, plugins: Iterable[Plugin]) -> tuple[Plugin, ...]:
        """Return the plug-ins that are asked; UnknownPlugin for a name that none of them has.

        Rules without a name protect the fleet, and cannot be switched off.
        """
        listed = tuple(plugins)
        known = sorted({each.name for each in listed if each.name})
        for flag, given in (("enable", self.enabled), ("disable", self.disabled)):
            unknown = [name for name in given if name not in known]
            if unknown:
                raise UnknownPlugin(
                    f"--{flag}-admission-plugins: {', '.join(unknown)} cannot be switched here; "
                    f"those that can are {', '.join(known)}"
                )
        both = sorted(set(self.enabled) & set(self.disabled))
        if both:
            raise UnknownPlugin(f"{', '.join(both)} cannot be both enabled and disabled")
        return tuple(each for each in listed if not each.name or each.name not in self.disabled)


def access_plugins(access: Access) -> tuple[Plugin, ...]:
    """Return the rules about rights. They come first: who may not write learns nothing else."""
    authorizer = access.authorizer
    return (
        CreateRight(authorizer),
        AgentGuard(authorizer.scope_of),
        CredentialsRight(authorizer),
        RecordRight(authorizer),
        OwnerRight(authorizer),
        ComponentGuard(),
        EscalationGuard(authorizer, access.role_cache),
        TemplateRight(authorizer),
        OverrideRight(authorizer),
    )


def kubernetes_plugins(*, is_hub: bool) -> tuple[Plugin, ...]:
    """Return the plug-ins every kube-apiserver has, in its order.

    A hub runs no pods: there the pods are templates, and what only members have is no mistake.
    """
    return (
        NamespaceLifecycle(),
        LimitRanger(is_hub=is_hub),
        ServiceAccount(is_hub=is_hub),
        NodeRestriction(),
        TaintNodesByCondition(),
        PodSecurity(is_hub=is_hub),
        Priority(is_hub=is_hub),
        DefaultTolerationSeconds(),
        DefaultStorageClass(is_hub=is_hub),
        StorageObjectInUseProtection(),
        PersistentVolumeClaimResize(),
        RuntimeClass(is_hub=is_hub),
        CertificateSubjects(),
        DefaultIngressClass(is_hub=is_hub),
    )


def hub_plugins(
    access: Access, members: AddressRules, unenforced: UnenforcedKinds, *, is_hub: bool = True
) -> tuple[Plugin, ...]:
    """Return all rules; `members` says where members may be, `unenforced` words the warnings."""
    return (
        *access_plugins(access),
        *kubernetes_plugins(is_hub=is_hub),
        ServiceAddresses(),
        MemberClusterRules(),  # before ClusterRules: it may make a Cluster somebody's
        ClusterRules(members),
        ClusterSecrets(),
        PlacementRules(),
        FleetOverrideRules(),
        EnvelopeRules(),
        PolicyRules(),
        RegistryRules(),
        FederatedQuotaRules(),
        AutoscalerRules(),
        ServiceRules(),
        InterpreterRules(),
        BindingRules(),
        PermanentIds(),
        # Copies on members have the label, too; there the hub decides.
        *((DeletionProtection(),) if is_hub else ()),
        unenforced,  # last: a warning is for who has not been refused
        # What the objects of users say, in kube-apiserver's order.
        MutatingPolicies(access.authorizer),
        MutatingWebhooks(access.authorizer),
        ValidatingPolicies(access.authorizer),
        ValidatingWebhooks(access.authorizer),
        FederatedQuotaEnforcement(),
        ResourceQuota(),  # after all that may refuse: what is counted is stored next
    )
