"""Agents whose certificates no longer count: those issued up to a moment, by cluster.

    kind: ConfigMap, metadata: {name: revoked-agents, namespace: kube-system}
    data: {west: "2026-01-01T00:00:00Z"}

A cluster that leaves is entered with the time it left; a certificate issued later counts again.
Every use of an agent's certificate looks here, so an entry takes effect with the next request.
"""

from typing import Final, cast

import structlog

from clusterspace.apiserver import forms
from clusterspace.apiserver.identity.following import follow
from clusterspace.apiserver.identity.reading import find_object
from clusterspace.apiserver.identity.token_secrets import MANAGER
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import create_own, edit_own
from clusterspace.errors import AlreadyExists, MalformedTimestamp
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.timestamps import format_time, parse_time

_log = structlog.get_logger(__name__)

NAMESPACE: Final = "kube-system"
NAME: Final = "revoked-agents"

_KEPT_SECONDS: Final = 48 * 3600.0
"""Twice the life of an agent's certificate: by then an entry says nothing any more."""

_CLUSTERS: Final = forms.collection_key("cluster.karmada.io", "clusters")


class Revocations:
    """The list of clusters whose agents are to be refused."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._maps = hub.catalog.get_storage("", "configmaps")

    async def run(self) -> None:
        """Revoke the agent of every cluster that goes away, until cancelled."""
        await follow(self._hub, (_CLUSTERS,), self._look)

    async def _look(self, key: str) -> None:
        if await self._hub.store.get(key) is None:
            await self.revoke(forms.name_in(key))

    async def covers(self, cluster: str, issued: float) -> bool:
        """Whether an agent's certificate issued then is revoked."""
        held = await find_object(self._hub, "", "configmaps", NAMESPACE, NAME)
        since = find_at(held, "data", cluster)
        return since is not None and issued <= revoked_at(since)

    async def revoke(self, cluster: str) -> None:
        """Refuse every certificate this cluster's agent was given until now."""
        now = self._hub.clock.now()

        def revoked(held: Object) -> Object:
            return {**held, "data": with_revoked(held.get("data") or {}, cluster, now)}

        entry = await edit_own(self._hub, self._maps, self._maps.key(NAMESPACE, NAME), revoked)
        if entry is None:
            await self._create(revoked({}), cluster)
        _log.info("agent certificates revoked", cluster=cluster)

    async def _create(self, wanted: Object, cluster: str) -> None:
        metadata = {"name": NAME, "namespace": NAMESPACE}
        whole: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **wanted}
        try:
            await create_own(self._hub, self._maps, whole, MANAGER)
        except AlreadyExists:
            await self.revoke(cluster)


def with_revoked(held: Object, cluster: str, now: float) -> Object:
    """Return the list with a cluster entered, and without entries that say nothing any more."""
    kept = {
        name: since
        for name, since in cast("dict[str, str]", held).items()
        if revoked_at(since) + _KEPT_SECONDS > now
    }
    return {**kept, cluster: format_time(now)}


def revoked_at(text: str) -> float:
    """Return the moment an entry names; one that cannot be read revokes for good."""
    try:
        return parse_time(text)
    except MalformedTimestamp:
        return float("inf")
