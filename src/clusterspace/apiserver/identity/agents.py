"""The agents of clusters: how they are named, and those whose certificates no longer count.

    kind: ConfigMap, metadata: {name: revoked-agents, namespace: kube-system}
    data: {west: "2026-01-01T00:00:00Z"}

A cluster that leaves is entered with the time it left; a certificate issued later counts again. So
is one that registers while there is none of its name: what others were given for that name is over.
Every use of an agent's certificate looks here, so an entry takes effect with the next request.

Nobody is the agent of a cluster that joined by Push by what they were given before it did.
"""

from typing import Final

import msgspec
import structlog

from clusterspace.apis.clusters import PULL
from clusterspace.apis.identities import AGENT_USER_PREFIX, AGENTS, NOT_A_CLUSTER
from clusterspace.apiserver import forms
from clusterspace.apiserver.http.revocations import AGENTS_NAME as NAME
from clusterspace.apiserver.http.revocations import (
    NAMESPACE,
    is_agent_revoked,
)
from clusterspace.apiserver.http.revocations import revoked_until as revoked_at
from clusterspace.apiserver.identity.following import edit_config_map, find_object, follow
from clusterspace.apiserver.state import HubState
from clusterspace.errors import ServiceUnavailable, StoreError
from clusterspace.kube.names import dns1123_label_problems
from clusterspace.kube.objects import find_at
from clusterspace.kube.times import format_time

_log = structlog.get_logger(__name__)

_KEPT_SECONDS: Final = 366 * 24 * 3600.0
"""Longer than any agent's certificate lives, also of Karmada's agents, whose first one lives for a
year where they are or were accepted: by then an entry says nothing any more."""

_CLUSTERS: Final = forms.collection_key("cluster.karmada.io", "clusters")


class _ClusterSpec(msgspec.Struct, rename="camel"):
    sync_mode: str = ""


class _ClusterMetadata(msgspec.Struct, rename="camel"):
    creation_timestamp: str = ""


class _Cluster(msgspec.Struct):
    spec: _ClusterSpec = msgspec.field(default_factory=_ClusterSpec)
    metadata: _ClusterMetadata = msgspec.field(default_factory=_ClusterMetadata)


_read_cluster: Final = msgspec.json.Decoder(_Cluster).decode


class PullMembers:
    """The clusters that only their agents can reach.

    Asked for often, and a Cluster is long: each state of one is read once.
    """

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._read: dict[str, tuple[int, bool]] = {}

    async def exist(self) -> bool:
        """Whether there are any."""
        try:
            page = await self._hub.store.range(_CLUSTERS)
        except StoreError as error:
            raise ServiceUnavailable(str(error)) from error
        before, self._read = self._read, {}
        for entry in page.items:
            known = before.get(entry.key)
            if known is None or known[0] != entry.mod_revision:
                known = entry.mod_revision, _read_cluster(entry.value).spec.sync_mode == PULL
            self._read[entry.key] = known
        return any(is_pull for _, is_pull in self._read.values())


def agent_user(cluster: str) -> str:
    """Return the user name of a cluster's agent: Karmada's names, so that Karmada's roles fit."""
    return AGENT_USER_PREFIX + cluster


def cluster_of_agent(username: str, groups: tuple[str, ...]) -> str:
    """Return the cluster whose agent a user is; empty for everybody else."""
    if AGENTS not in groups or not username.startswith(AGENT_USER_PREFIX):
        return ""
    cluster = username.removeprefix(AGENT_USER_PREFIX)
    return cluster if is_cluster_name(cluster) else ""


def is_cluster_name(name: str) -> bool:
    """Whether a cluster may have this name and an agent of its own."""
    return not dns1123_label_problems(name) and name != NOT_A_CLUSTER


class Revocations:
    """The list of clusters whose agents are to be refused."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub

    async def run(self) -> None:
        """Revoke the agent of every cluster that goes away, until cancelled.

        A hub that stops after a cluster went and before it is entered here has nothing to see
        when it starts again: that agent's certificate counts until it ends, a day at most.
        """

        async def look(key: str) -> None:
            if await self._hub.store.get(key) is None:
                await self.revoke(forms.name_in(key))

        await follow(self._hub, (_CLUSTERS,), look)

    async def covers(self, cluster: str, issued: float) -> bool:
        """Whether an agent's certificate issued then is revoked."""
        # Read with every use and never remembered, so that a revocation needs nobody to hear of it.
        revoked = await find_object(self._hub, "", "configmaps", NAMESPACE, NAME)
        if is_agent_revoked(find_at(revoked, "data"), cluster, issued):
            return True
        entry = await self._hub.store.get(f"{_CLUSTERS}{cluster}")
        known = None if entry is None else _read_cluster(entry.value)
        if known is None or known.spec.sync_mode in ("", PULL):
            return False
        # Both are whole seconds. Who asks in the very second of the join asked for it: by a token
        # that names a cluster which is there.
        return issued < revoked_at(known.metadata.creation_timestamp)

    async def revoke(self, cluster: str, until: float | None = None) -> None:
        """Refuse every certificate this cluster's agent was given until then; until now without."""
        now = self._hub.clock.now()
        until = now if until is None else until
        await edit_config_map(
            self._hub,
            NAMESPACE,
            NAME,
            lambda entries: with_revoked(entries, cluster, now, until),
            is_owned=False,
        )
        _log.info("agent certificates revoked", cluster=cluster)


def with_revoked(
    entries: dict[str, str], cluster: str, now: float, until: float | None = None
) -> dict[str, str]:
    """Return the list with a cluster entered, and without entries that say nothing any more."""
    kept = {
        name: since for name, since in entries.items() if revoked_at(since) + _KEPT_SECONDS > now
    }
    until = now if until is None else until
    if cluster in kept and revoked_at(kept[cluster]) >= until:
        return kept
    return {**kept, cluster: format_time(until)}
