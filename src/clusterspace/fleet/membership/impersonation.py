"""Users reach every member that can be reached: the impersonator's rights are proved and completed.

Our own join grants them. `karmadactl join` makes the account alone, and Karmada's controllers name
in its role the subjects of their hub, one by one; such a member is Ready and shows nobody anything.

    asked as the impersonator ──may stand for anybody──> well, asked again after a while
                              ──may not──> granted beside its role ──still may not──> condition

A Cluster without `impersonatorSecretRef` is left alone: that is how Karmada says that no user is to
reach it. What a member that cannot be asked grants is not known, and nothing is said of it.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from clusterspace.apis.clusters import (
    CLUSTERS,
    conditions_of,
    impersonator_ref_of,
    secret_ref_of,
)
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.commit import commit, is_being_deleted
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import (
    ApiError,
    CannotJoin,
    ClusterError,
    CredentialsUnclaimed,
    CredentialsUnusable,
    Forbidden,
    Unauthorized,
)
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import MemberClients
from clusterspace.fleet.membership.member_access import Journal, MemberAccess, not_impersonated
from clusterspace.fleet.membership.status import is_reached_anew
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition, set_condition
from clusterspace.kube.objects import Object, name_of, uid_of, with_value

_log = structlog.get_logger(__name__)

IMPERSONATION: Final = "ImpersonationGranted"
_GRANTED: Final = Condition(
    IMPERSONATION, TRUE, "Granted", "users of the hub reach the member under their own names"
)
_SYNCED: Final = "SyncImpersonationConfigSucceed"
_NOT_SYNCED: Final = "SyncImpersonationConfigFailed"
_SETTLE_SECONDS: Final = 2.0
"""Servers take a moment until they know a new role."""
_PERIODS: Final = 6
"""A look costs a member three questions; a status period it costs more."""


class Impersonation(Reconciler):
    """Lets users reach each member through the hub, and says where they cannot."""

    name = "impersonation"
    workers = 16

    def __init__(
        self,
        hub: ClusterClient,
        caches: HubCaches,
        events: EventRecorder,
        members: MemberClients,
        impersonators: MemberClients,
        status_seconds: float,
    ) -> None:
        self._hub = hub
        self._clusters = caches.informer(CLUSTERS)
        self._events = events
        self._members = members
        self._impersonators = impersonators
        self._clock = hub.connection.clock
        self._period = status_seconds * _PERIODS
        self._reported: dict[str, str] = {}
        """The UID of the Cluster, by name, of which it was said that users reach it. Lost with the
        process, which begins by saying it once more."""
        self.longest_retry_seconds = self._period

    def watches(self) -> Iterable[Watch]:
        """Return Clusters that are new, are leaving, or say another way to be reached."""
        yield Watch(self._clusters, when=is_reached_anew)

    async def reconcile(self, request: Request) -> Result:
        """See whether users reach one member, and see to it that they do."""
        # Read live: a Cluster that is leaving gets nothing new. One that begins to leave right
        # after this line may; what is made then is owned by the very role that the leave removes,
        # and goes with it.
        cluster = await self._hub.find(manifests.cluster_path(request.name))
        if cluster is None or is_being_deleted(cluster):
            await self._impersonators.forget(request.name)
            self._reported.pop(request.name, None)
            return Done()
        if secret_ref_of(cluster) is None or impersonator_ref_of(cluster) is None:
            return Done()
        try:
            missing = await not_impersonated(await self._impersonators.reach(cluster))
            if missing and await self._grant(cluster):
                done = f"granted the impersonation of {', '.join(missing)} on the member"
                self._events.record(cluster, _SYNCED, done)
                return RequeueAfter(_SETTLE_SECONDS)
            condition = _GRANTED
            if missing:
                why = f"the impersonator may not impersonate {', '.join(missing)} on the member"
                condition = Condition(IMPERSONATION, FALSE, "NotPermitted", why)
        except CredentialsUnclaimed:
            return RequeueAfter(_SETTLE_SECONDS)  # the join that made the Cluster is under way
        except Unauthorized:
            why = "the member does not accept the hub's tokens: join the cluster again"
            condition = Condition(IMPERSONATION, FALSE, "CredentialsRefused", why)
        except CredentialsUnusable as error:
            condition = Condition(IMPERSONATION, FALSE, "CredentialsUnusable", error.why)
        except (Forbidden, CannotJoin) as error:
            condition = Condition(IMPERSONATION, FALSE, "NotPermitted", str(error))
        except (ApiError, ClusterError) as error:
            _log.debug("impersonation not seen", cluster=request.name, reason=str(error))
            return RequeueAfter(self._period)
        await self._say(cluster, condition)
        return RequeueAfter(self._period)

    async def _grant(self, cluster: Object) -> bool:
        """Grant what is missing; False when it is granted already, and does not help."""
        hub_id = uid_of(await self._hub.get(manifests.namespace_path("kube-system")))
        name, member = name_of(cluster), await self._members.reach(cluster)
        beside = manifests.impersonation_role_name(name)
        paths = manifests.role_path(beside), manifests.role_binding_path(beside)
        role = await member.find(manifests.role_path(manifests.role_name(name)))
        before = [await member.find(each) for each in paths]
        access = MemberAccess(name, member, Journal(name), self._clock)
        await access.grant_impersonation(hub_id, role)
        return before != [await member.find(each) for each in paths]

    async def _say(self, cluster: Object, condition: Condition) -> None:
        """Write the condition; one that is well and always was is not written."""
        conditions = conditions_of(cluster)
        if condition is _GRANTED and find_condition(conditions, IMPERSONATION) is None:
            if self._reported.get(name_of(cluster)) != uid_of(cluster):
                self._reported[name_of(cluster)] = uid_of(cluster)
                self._events.record(cluster, _SYNCED, condition.message)
            return
        changed = set_condition(conditions, condition, self._clock.now())
        if not changed.is_changed:
            return
        path = manifests.cluster_path(name_of(cluster))
        after = with_value(cluster, changed.conditions, "status", "conditions")
        await commit(self._hub, path, cluster, after)
        if condition.status == TRUE:
            self._events.record(cluster, _SYNCED, condition.message)
        else:
            self._events.record(cluster, _NOT_SYNCED, condition.message, is_warning=True)
