"""The rules that the webhook asks: those of our own hub, in its order, on what an API server has.

Three differ from the hub's own, for the API server does a part of them itself, or several webhooks
may run at once.
"""

import asyncio
import hashlib
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis import clusters
from clusterspace.apis.identities import CONTROLLERS_USER
from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.access.grants import RoleCache
from clusterspace.apiserver.access.rbac import RBAC_GROUP
from clusterspace.apiserver.admission.autoscalers import AutoscalerRules
from clusterspace.apiserver.admission.clusters import (
    ClusterRules,
    ClusterSecrets,
    MemberClusterRules,
)
from clusterspace.apiserver.admission.escalation import EscalationGuard, carries_rights
from clusterspace.apiserver.admission.federated_quotas import (
    FederatedQuotaRules,
    ReviewedQuotaEnforcement,
)
from clusterspace.apiserver.admission.propagation import (
    BindingRules,
    EnvelopeRules,
    FleetOverrideRules,
    InterpreterRules,
    PermanentIds,
    PlacementRules,
    PolicyRules,
    RegistryRules,
)
from clusterspace.apiserver.admission.rights import (
    AgentGuard,
    ComponentGuard,
    CredentialsRight,
    OverrideRight,
    OwnerRight,
    RecordRight,
    TemplateRight,
)
from clusterspace.apiserver.admission.services import ServiceRules
from clusterspace.apiserver.admission.unenforced import UnenforcedKinds
from clusterspace.apiserver.kubernetes_hub.manifests import LABELS, NAMESPACE
from clusterspace.apiserver.kubernetes_hub.reading import ApiStore, ReviewedRights
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.client.endpoints import AddressRules
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.errors import AlreadyExists, Conflict, MalformedTimestamp, NotFound
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at, name_of, resource_version_of, uid_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_micro_time, parse_time

_LEASES: Final = GroupVersionResource("coordination.k8s.io", "v1", "leases")
_CLAIMS: Final = ResourcePath(_LEASES, NAMESPACE)

CLAIM_SECONDS: Final = 3.0
"""How long an admitted Cluster may take to be stored; the API server gives up on us after ten."""

_WAIT_SECONDS: Final = 8.0
_LOOK_SECONDS: Final = 0.1
_FORGOTTEN_SECONDS: Final = 3600.0


def webhook_plugins(
    hub: ClusterClient, store: ApiStore, members: AddressRules, clock: Clock
) -> tuple[Plugin, ...]:
    """Return the rules in the order in which they are asked."""
    rights = ReviewedRights(hub)
    return (
        AgentGuard(),
        CredentialsRight(rights),
        RecordRight(rights),
        OwnerRight(rights),
        ComponentGuard(),
        CarriedRights(store),
        TemplateRight(rights),
        OverrideRight(rights),
        MemberClusterRules(),
        ClaimedClusterRules(hub, members, clock),
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
        ReviewedQuotaEnforcement(hub),
        UnenforcedKinds(),
    )


class CarriedRights(Plugin):
    """Nobody has rights granted on a member that they do not hold themselves.

    The API server itself looks at roles that are written to it. Those in a Work are for us, and so
    are those that the controllers write: they may lend less than they hold. Compared with roles as
    they are now; rights that another authorizer gives are not known, so they do not count.
    """

    def __init__(self, store: ApiStore) -> None:
        self._store = store

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is, or refuse it."""
        is_lent = (
            admission.served.info.group == RBAC_GROUP and admission.user.name == CONTROLLERS_USER
        )
        if not is_lent and not carries_rights(admission):
            return admission.new
        roles = RoleCache(self._store)
        await roles.load()
        return await EscalationGuard(HubAuthorizer(roles), roles).admit(hub, admission)


class ClaimedClusterRules(ClusterRules):
    """The rules of Clusters where several webhooks decide: an ID is claimed by a Lease first.

    Whoever creates the Lease of an ID, or takes over one that has not moved for a while by his own
    clock, is alone with it until that while is over; then all Clusters are looked at. What a crash
    leaves is a Lease that others take over.
    """

    def __init__(self, hub: ClusterClient, members: AddressRules, clock: Clock) -> None:
        super().__init__(members)
        self._hub = hub
        self._clock = clock

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Claim a new ID, then check the Cluster as the hub does."""
        if admission.is_of(clusters.CLUSTERS.group, clusters.KIND) and not admission.subresource:
            cluster_id = clusters.id_of(admission.new)
            is_new = cluster_id and cluster_id != clusters.id_of(admission.old or {})
            # A dry run stores nothing, so there is nothing for others to wait for.
            if is_new and not admission.dry_run:
                await self._claim(cluster_id, name_of(admission.new))
        return await super().admit(hub, admission)

    async def _claim(self, cluster_id: str, name: str) -> None:
        place = _CLAIMS.named(f"cluster-id-{hashlib.sha256(cluster_id.encode()).hexdigest()[:40]}")
        seen, since = "", self._clock.monotonic()
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                while True:
                    existing = await self._hub.find(place)
                    desired = self._lease(place.name, name, existing)
                    try:
                        if existing is None:
                            await self._hub.create(_CLAIMS, desired)
                            return
                        version = resource_version_of(existing)
                        if version != seen:
                            seen, since = version, self._clock.monotonic()
                        is_own = find_at(existing, "spec", "holderIdentity") == name
                        # Stored by now, as a rule: then there is nothing to wait for.
                        if not is_own and await self._owner(cluster_id, name):
                            return
                        if is_own or self._clock.monotonic() - since >= CLAIM_SECONDS:
                            await self._hub.update(place, desired)
                            return
                    except (AlreadyExists, Conflict, NotFound):
                        continue
                    await self._clock.sleep(_LOOK_SECONDS)
        except TimeoutError as error:
            why = "another Cluster is being created with the same ID: try again in a moment"
            raise statuses.unavailable(why) from error

    async def _owner(self, cluster_id: str, name: str) -> str | None:
        stored = await self._hub.list_objects(ResourcePath(clusters.CLUSTERS))
        return clusters.find_same_id(stored, cluster_id, name)

    def _lease(self, lease_name: str, cluster: str, existing: Object | None) -> Object:
        spec = {
            "holderIdentity": cluster,
            "leaseDurationSeconds": int(CLAIM_SECONDS),
            "renewTime": format_micro_time(self._clock.now()),
        }
        metadata: Object = {"name": lease_name, "namespace": NAMESPACE, "labels": LABELS}
        if existing is not None:
            metadata["resourceVersion"] = resource_version_of(existing)
        return {
            "apiVersion": _LEASES.api_version,
            "kind": "Lease",
            "metadata": metadata,
            "spec": spec,
        }


async def forget_claims(hub: ClusterClient, now: float) -> None:
    """Delete the Leases of claims that were settled long ago."""
    for lease in await hub.list_objects(_CLAIMS):
        if not name_of(lease).startswith("cluster-id-"):
            continue
        try:
            renewed = parse_time(str(find_at(lease, "spec", "renewTime") or ""))
        except MalformedTimestamp:
            continue
        if now - renewed > _FORGOTTEN_SECONDS:
            try:
                await hub.delete(
                    _CLAIMS.named(name_of(lease)),
                    DeleteOptions(uid_of(lease), resource_version_of(lease)),
                )
            except (NotFound, Conflict):
                continue
