"""A hub, members and a fleet API server in this event loop, asked by people with tokens."""

import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.component.fake_clusters import Handle, fake_cluster

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import Answer, ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.errors import NotFound
from clusterspace.fleet.gateway.clusters import Lapses, ListKey
from clusterspace.fleet.gateway.fanout import FleetLimits, exchange
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, uid_of, with_metadata
from clusterspace.roots.fleet import RunningFleet, running_fleet
from clusterspace.roots.settings import FleetSettings
from clusterspace.testing import stage
from clusterspace.testing.certificates import loopback_tls
from clusterspace.testing.hostile import KINDS, hostile_member
from clusterspace.testing.hubs import MASTERS_TRAVEL, OURS, part_of_hub
from clusterspace.testing.stage import Fleet, Side
from clusterspace.testing.steps import until

ROOT = "root-token"
TOKENS = f"""
{ROOT},root,0,"system:masters"
jane-token,jane,1,"dev"
carl-token,carl,2,"ops"
"""
REACHING_ALL = (ROOT, "carl-token")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
RBAC = "rbac.authorization.k8s.io"
PUSH, PULL = "push", "pull"
MEMBERS_MODE = "CLUSTERSPACE_MEMBERS_MODE"
"""Has the members of every fleet here belong to it in this way, unless a test says in which."""
HOSTILE = "aa-hostile"
"""What a hostile member is called that tests know nothing of: before all others."""
HOSTILE_KIND = "CLUSTERSPACE_HOSTILE_MEMBER"
"""Puts a hostile member of this kind into every fleet here. Whatever a test asserts must hold all
the same: the one warning about the member is all that may be seen of it, and is taken out below."""


@dataclass
class Heard:
    """An answer, decoded."""

    code: int
    body: Any
    headers: dict[str, str]

    @property
    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.body["items"]]

    def names_with(self, start: str) -> list[str]:
        return [name for name in self.names if name.startswith(start)]

    @property
    def message(self) -> str:
        return self.body["message"]

    @property
    def warning(self) -> str:
        return self.headers.get("warning", "")


@dataclass
class Site:
    """A fleet that runs."""

    fleet: Fleet
    running: RunningFleet
    members: dict[str, Side] = field(default_factory=dict)
    data_name: str = "fleet"
    """The folder in which the fleet API server keeps its things."""
    connections: dict[tuple[str, str], Connection] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.running.url

    @property
    def hub(self) -> Side:
        return self.fleet.hub

    @property
    def directory(self) -> Path:
        return self.fleet.directory

    def connection(self, token: str, url: str = "") -> Connection:
        """Return a connection to the fleet API server for whoever holds a token."""
        key = (token, url or self.url)
        if key not in self.connections:
            authority = (self.directory / self.data_name / "pki" / "ca.crt").read_bytes()
            settings = ConnectionSettings(
                "fleet", key[1], Trust(Pem(authority)), AuthInfo(token=token)
            )
            connection = Connection(settings, clock=SystemClock(), random=Random(1))
            self.connections[key] = connection
        return self.connections[key]

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = ROOT,
        headers: tuple[tuple[str, str], ...] = (),
        content_type: str = "application/json",
        url: str = "",
    ) -> Heard:
        """Ask the fleet API server, once."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body else None
        given = (*headers, ("Content-Type", content_type)) if raw else headers
        ask = ApiRequest(method, path, headers=given, body=raw)
        answer = heard(await exchange(self.connection(token, url), ask))
        if os.environ.get(HOSTILE_KIND) and token in REACHING_ALL:
            answer.headers = without_hostile(answer.headers)
        return answer

    async def wait_for(self, cluster: str, *, is_gone: bool = False) -> None:
        """Wait until the fleet API server has heard that a cluster joined or left."""

        async def is_so() -> bool:
            return (cluster in self.running.fleet.directory.members()) is not is_gone

        await until(is_so)

    async def close(self) -> None:
        for connection in self.connections.values():
            await connection.close()


def without_hostile(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers without what is said of the hostile member, and without counting it."""
    entry = rf"{HOSTILE} \((?:[^()]|\([^()]*\))*\)"
    # Whatever it says: there may be a semicolon in it, which stands between headings otherwise.
    warning = re.sub(entry, f"{HOSTILE} (why)", headers.get("warning", ""))

    def uncounted(found: re.Match[str]) -> str:
        lost, asked, heading, who = int(found[1]), int(found[2]), found[3], found[4]
        rest = re.sub(rf"{entry}(, )?|, {entry}$", "", who)
        lost -= rest != who
        return f"{lost} of {asked - 1} clusters {heading}: {rest}" if lost else ""

    pattern = r"(\d+) of (\d+) clusters ([a-z ]+): ((?:[^;\"]|\\.)*)"
    said = re.sub(pattern, uncounted, warning).replace("; ; ", "; ").replace(": ; ", ": ")
    said = re.sub(r'; (?=")', "", said)
    said = re.sub(r'299 - "[a-z ]+: "(, )?', "", said)
    said = re.sub(rf'299 - "cluster {HOSTILE}: [^"]*"(, )?', "", said).removesuffix(", ")
    kept = {name: value for name, value in headers.items() if name != "warning"}
    return {**kept, "warning": said} if said else kept


def heard(answer: Answer) -> Heard:
    is_json = "json" in answer.headers.get("content-type", "")
    body = json.loads(answer.body) if is_json and answer.body else answer.body
    return Heard(answer.status, body, dict(answer.headers))


@asynccontextmanager
async def fleet_site(
    directory: Path,
    *,
    members: tuple[str, ...] = ("east", "west"),
    sims: tuple[str, ...] = (),
    federation: bool = True,
    list_seconds: float = 2.0,
    request_seconds: float = 55.0,
    identities: MemberIdentities = MASTERS_TRAVEL,
    limits: FleetLimits | None = None,
    hub_kind: str = OURS,
    audit_policy_file: Path | None = None,
    mode: str = "",
) -> AsyncGenerator[Site]:
    """Run a hub with members that have joined, and the fleet API server in front."""
    mode = mode or os.environ.get(MEMBERS_MODE, PUSH)
    async with AsyncExitStack() as stack:
        fleet = await running_hub_of_fleet(directory, stack, identities, hub_kind)
        sides: dict[str, Side] = {}
        for name in members:
            sides[name] = await fleet.add_member(name)
        for name in sims:
            sides[name] = await fleet.add_sim(name, nodes=1)
        for name, side in sides.items() if mode == PUSH else ():
            await fleet.join(name, side)
        settings = FleetSettings(
            hub=part_of_hub(directory / "hub", "fleet"),
            data_dir=directory / "fleet",
            port=0,
            federation=federation,
            member_cidrs=LOOPBACK,
            limits=limits or FleetLimits(list_seconds, request_seconds),
            identities=identities,
            audit_policy_file=audit_policy_file,
        )
        running = await stack.enter_async_context(running_fleet(settings))
        site = Site(fleet, running, sides)
        stack.push_async_callback(site.close)
        for name, side in sides.items() if mode == PULL else ():
            await stack.enter_async_context(pulled(site, name, side))
        if kind := os.environ.get(HOSTILE_KIND):
            running.fleet.lapses.__class__ = LongLapsed
            member = await stack.enter_async_context(hostile_member(KINDS[kind]))
            if (
                await fleet.hub.client.find(
                    ResourcePath(manifests.NAMESPACES, "", "karmada-cluster")
                )
                is None
            ):
                made = manifests.namespace("karmada-cluster")
                await fleet.hub.client.create(ResourcePath(manifests.NAMESPACES), made)
            await stack.enter_async_context(member_at(site, HOSTILE, member.url))
        yield site


@asynccontextmanager
async def pulled(site: Site, name: str, side: Side) -> AsyncGenerator[None]:
    """Register a cluster and run its agent; begin when users can reach it."""
    await stage.register(site.fleet, name, side)
    async with stage.running_agent(side):
        await until_reached(site, name)
        yield


async def until_reached(site: Site, *clusters: str) -> None:
    """Wait until nothing stands in the way to these clusters."""

    async def is_so() -> bool:
        directory = site.running.fleet.directory
        known = directory.members()
        return all(each in known and directory.problem_with(each) is None for each in clusters)

    await until(is_so)


def without_federation(site: Site) -> AbstractAsyncContextManager[Site]:
    """Run a second fleet API server before the same clusters, which leaves the hub out."""
    return another_view(site, "without", federation=False)


@asynccontextmanager
async def another_view(
    site: Site, name: str, *, federation: bool = True, bulk_delete_members: bool = False
) -> AsyncGenerator[Site]:
    """Run a second fleet API server before the same clusters, with other settings."""
    settings = FleetSettings(
        hub=part_of_hub(site.directory / "hub", "fleet"),
        data_dir=site.directory / name,
        port=0,
        federation=federation,
        bulk_delete_members=bulk_delete_members,
        member_cidrs=LOOPBACK,
        limits=site.running.fleet.limits,
        identities=site.running.fleet.identities,
    )
    async with running_fleet(settings) as running:
        running.fleet.lapses.__class__ = site.running.fleet.lapses.__class__
        beside = Site(site.fleet, running, site.members, name)
        await until_reached(beside, *site.members)
        try:
            yield beside
        finally:
            await beside.close()


async def running_hub_of_fleet(
    directory: Path, stack: AsyncExitStack, identities: MemberIdentities, hub_kind: str = OURS
) -> Fleet:
    """Run a hub with the users above until the stack ends."""
    hub = stage.running_fleet(directory, tokens=TOKENS, identities=identities, hub_kind=hub_kind)
    return await stack.enter_async_context(hub)


class LongLapsed(Lapses):
    """As if the hostile member had failed for longer than anybody waits for it."""

    def is_set_aside(self, key: ListKey, failure: Exception) -> bool:
        return key.cluster == HOSTILE or super().is_set_aside(key, failure)


@asynccontextmanager
async def fake_member(site: Site, name: str, handle: Handle) -> AsyncGenerator[None]:
    """Have a server of the test's own be a member for as long as the block lasts."""
    tls = loopback_tls()
    async with (
        fake_cluster(handle, ssl_context=tls.context) as port,
        member_at(site, name, f"https://127.0.0.1:{port}"),
    ):
        yield


@asynccontextmanager
async def member_at(site: Site, name: str, server: str) -> AsyncGenerator[None]:
    """Have a server with the tests' certificate be a member for as long as the block lasts."""
    await write_member(site.hub.client, name, server)

    async def can_be_asked() -> bool:
        directory = site.running.fleet.directory
        return name in directory.members() and directory.problem_with(name) is None

    await until(can_be_asked)
    try:
        yield
    finally:
        await site.ask("DELETE", f"/clusterspaces/hub{manifests.cluster_path(name).path}")
        await site.wait_for(name, is_gone=True)
        await forget_secrets(site.hub.client, name)


async def write_member(
    hub: ClusterClient, name: str, server: str, token: bytes = b"secret-1"
) -> Object:
    """Write a Cluster and its Secrets as a join leaves them, with nobody asked over there."""
    authority = loopback_tls().authority
    made = manifests.cluster(name, name, manifests.Endpoint(server), manifests.NOWHERE)
    cluster = await hub.create(manifests.cluster_path(name).collection, made)
    for secret, values in (
        (name, {"caBundle": authority, "token": token}),
        (manifests.impersonator_secret_name(name), {"token": token}),
    ):
        owner = manifests.owner_of_secrets(cluster)
        wanted = manifests.credentials_secret(secret, values)
        owned = with_metadata(wanted, ownerReferences=[owner])
        await hub.create(manifests.secret_path(secret).collection, owned)
    return cluster


async def forget_secrets(hub: ClusterClient, name: str) -> None:
    """Delete the Secrets of a cluster that is gone, rather than wait until they are collected."""
    for secret in (name, manifests.impersonator_secret_name(name)):
        place = manifests.secret_path(secret)
        held = await hub.find(place)
        if held is not None:
            with suppress(NotFound):
                await hub.delete(place, DeleteOptions(uid_of(held)))


async def grant(side: Side, user: str, rules: list[dict[str, Any]], name: str) -> None:
    """Give a user a role of its own in a cluster."""
    role = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
    await side.client.create(ResourcePath(manifests.CLUSTER_ROLES), role)
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
    }
    await side.client.create(ResourcePath(manifests.CLUSTER_ROLE_BINDINGS), binding)


def reaching(*clusters: str) -> list[dict[str, Any]]:
    """Return the rules on the hub that let somebody reach members."""
    rule: dict[str, Any] = {
        "apiGroups": ["cluster.karmada.io"],
        "resources": ["clusters/proxy"],
        "verbs": ["*"],
    }
    return [{**rule, "resourceNames": list(clusters)} if clusters else rule]


def using(*resources: str) -> list[dict[str, Any]]:
    """Return rules that let somebody do anything with resources of the core group."""
    return [{"apiGroups": [""], "resources": list(resources), "verbs": ["*"]}]
