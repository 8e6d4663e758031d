"""The heartbeat of a Pull cluster: its agent renews a Lease on the hub while it lives.

It says that the agent runs and reaches the hub, and nothing else; how the member is, the status
tells. The hub's monitor waits forty seconds for the next beat. One every five means that an agent
that dies is noticed between thirty-five and forty-five seconds later.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.finalizers import is_being_deleted
from clusterspace.errors import ApiError, ClusterError
from clusterspace.fleet.membership import manifests, names
from clusterspace.kube.objects import Object, name_of, with_value
from clusterspace.kube.timestamps import format_micro_time

_log = structlog.get_logger(__name__)

_DURATION_SECONDS: Final = 40


@dataclass(frozen=True, slots=True)
class BeatSettings:
    """How often to renew, and how soon to try again when the hub did not answer."""

    renew_seconds: float = 5.0
    retry_seconds: float = 2.0
    answer_seconds: float = 5.0
    """A request that hangs in a cut network must not outlast the cut."""


def lease_object(cluster: Object, now: float) -> Object:
    """Return the lease of a cluster; it goes away with its Cluster."""
    name = name_of(cluster)
    place = names.lease_place(name)
    return {
        "apiVersion": names.LEASES.api_version,
        "kind": "Lease",
        "metadata": {
            "name": place.name,
            "namespace": place.namespace,
            "ownerReferences": [owner_of_lease(cluster)],
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": _DURATION_SECONDS,
            "renewTime": format_micro_time(now),
        },
    }


def owner_of_lease(cluster: Object) -> Object:
    """Return the reference by which a lease goes away with its Cluster."""
    owner = manifests.owner_of_secrets(cluster)
    return {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}


class HeartBeat:
    """Renews the lease of one cluster."""

    def __init__(
        self, hub: Client, cluster_name: str, *, clock: Clock, settings: BeatSettings
    ) -> None:
        self._hub = hub
        self._name = cluster_name
        self._place = names.lease_place(cluster_name)
        self._clock = clock
        self._settings = settings
        self._held: Object | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Renew until cancelled; a hub that does not answer is asked again soon."""
        while True:
            try:
                async with asyncio.timeout(self._settings.answer_seconds):
                    await self.beat()
                self._trouble = ""
            except (ApiError, ClusterError, TimeoutError) as error:
                # Whatever is wrong, we no longer know what the hub holds.
                self._held = None
                self._warn(repr(error))
                await self._clock.sleep(self._settings.retry_seconds)
            else:
                await self._clock.sleep(self._settings.renew_seconds)

    def _warn(self, trouble: str) -> None:
        """Say what is wrong once: an agent may wait for days until its hub knows it."""
        if trouble != self._trouble:
            _log.warning("lease not renewed", cluster=self._name, reason=trouble)
        self._trouble = trouble

    async def beat(self) -> None:
        """Renew the lease, or create it when there is none; a cluster that leaves needs none."""
        held = self._held or await self._hub.find(self._place)
        if held is None:
            cluster = await self._hub.get(names.cluster_place(self._name))
            if not is_being_deleted(cluster):
                wanted = lease_object(cluster, self._clock.now())
                self._held = await self._hub.create(self._place.collection, wanted)
            return
        renewed = with_value(held, format_micro_time(self._clock.now()), "spec", "renewTime")
        self._held = await commit(self._hub, self._place, held, renewed)
