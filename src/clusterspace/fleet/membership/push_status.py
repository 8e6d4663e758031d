"""The status of every Push cluster, asked by the hub and told in Cluster.status and Events."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import FINALIZER, is_pull
from clusterspace.client.discovery import Discovery
from clusterspace.client.resources import ClusterClient, Reader
from clusterspace.controllers.finalizers import finalizers_of, is_being_deleted
from clusterspace.controllers.informers import Update
from clusterspace.controllers.reconcile import Done, Request, RequeueAfter, Result, request_for
from clusterspace.errors import (
    AddressNotAllowed,
    CredentialsUnclaimed,
    CredentialsUnusable,
    UnusableKubeconfig,
)
from clusterspace.fleet.membership import names
from clusterspace.fleet.membership.connections import MemberClients
from clusterspace.fleet.membership.health import Health, State, why_of
from clusterspace.fleet.membership.status import (
    Report,
    StatusKeeper,
    collect,
    figures_of,
)
from clusterspace.kube.objects import Object, metadata_of, name_of
from clusterspace.kube.timestamps import parse_time
from clusterspace.telemetry import fleet_metrics

FREQUENCY_SECONDS: Final = 10.0

_CLAIM_SECONDS: Final = 30.0
"""A join writes the Cluster, then whose its Secrets are. A look in between would find a cluster
that cannot be asked, and what is seen first counts at once. A join that ended there is told later.
"""
_CLAIM_LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Member:
    client: ClusterClient
    discovery: Discovery


class PushStatus:
    """Reconciles the status of Push clusters, again and again."""

    def __init__(
        self,
        hub: Reader,
        members: MemberClients,
        keeper: StatusKeeper,
        *,
        clock: Clock,
        frequency_seconds: float = FREQUENCY_SECONDS,
    ) -> None:
        self._hub = hub
        self._members = members
        self._keeper = keeper
        self._clock = clock
        self._frequency_seconds = frequency_seconds
        self._known: dict[str, _Member] = {}

    async def reconcile(self, request: Request) -> Result:
        """Look at one member and write what changed."""
        cluster = await self._hub.find(names.cluster_place(request.name))
        if cluster is None:
            await self._members.forget(request.name)
        if cluster is None or is_being_deleted(cluster):
            self._forget(request.name)
            return Done()
        if is_pull(cluster) or FINALIZER not in finalizers_of(cluster):
            return Done()
        started = self._clock.monotonic()
        report = await self._look(cluster)
        if report is None:
            return RequeueAfter(_CLAIM_LOOK_SECONDS)
        after = await self._keeper.write(cluster, report)
        seconds = self._clock.monotonic() - started
        fleet_metrics.cluster_seen(request.name, figures_of(after), seconds)
        # The next look begins a period after this one began, however long this one took.
        return RequeueAfter(max(self._frequency_seconds - seconds, 0.0))

    async def _look(self, cluster: Object) -> Report | None:
        """Look at a member; None while the join that made its Cluster is still under way."""
        try:
            member = await self._members.reach(cluster)
        except CredentialsUnclaimed as error:
            born = parse_time(str(metadata_of(cluster)["creationTimestamp"]))
            if self._clock.now() - born < _CLAIM_SECONDS:
                return None
            return Report(Health(State.UNPROBED, error.why))
        except AddressNotAllowed as error:
            return Report(Health(State.UNPROBED, why_of(error)))
        except (CredentialsUnusable, UnusableKubeconfig) as error:
            return Report(Health(State.UNPROBED, str(error)))
        return await collect(member, self._discovery(name_of(cluster), member))

    def _discovery(self, cluster_name: str, member: ClusterClient) -> Discovery:
        held = self._known.get(cluster_name)
        if held is None or held.client is not member:
            held = _Member(member, Discovery(member.connection))
            self._known[cluster_name] = held
        return held.discovery

    def _forget(self, cluster_name: str) -> None:
        self._known.pop(cluster_name, None)
        fleet_metrics.cluster_forgotten(cluster_name)
        self._keeper.forget(cluster_name)


def when_reachable_anew(update: Update) -> Iterable[Request]:
    """Look at a member when its Cluster is new, is leaving, or says another way to reach it."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None or _shape_of(before) != _shape_of(after):
        yield request_for(update.key)


def _shape_of(cluster: Object) -> tuple[object, ...]:
    """Return what matters for looking; taints come and go with what was seen."""
    spec = {key: value for key, value in cluster["spec"].items() if key != "taints"}
    return spec, finalizers_of(cluster), is_being_deleted(cluster)
