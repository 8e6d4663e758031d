"""Authorities and keys of a hub and a gateway that run are replaced, with clients at work."""

import asyncio
import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.component.gateway.watch_streams import watching

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.identity.authority import key_id_of, read_bundle, signer_of
from clusterspace.client import settings as client_settings
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.fleet.membership.registration import (
    REGISTRATION_PLACE,
    AgentCredentials,
    RegistrationRenewal,
    read_registration,
)
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.installation import Installation
from clusterspace.roots.rotation import AuthorityRoll, Outcome, Pace, Site, Stage, rotate
from clusterspace.roots.settings import FleetSettings
from clusterspace.testing import stage
from clusterspace.testing.hubs import client_for_test, part_of_hub
from clusterspace.testing.stage import Fleet
from clusterspace.testing.steps import stop, until

MAPS = "/api/v1/namespaces/kube-system/configmaps"
QUICK = Pace(overlap_seconds=1.0, unused_seconds=2.0)
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")


@dataclass
class Running:
    """A hub and a gateway in one data directory, as `up` lays them out."""

    fleet: Fleet
    fleet_url: str
    directory: Path

    @property
    def hub_url(self) -> str:
        return self.fleet.hub.settings.server

    @property
    def hub(self) -> Installation:
        return Installation(self.directory / "hub")


@asynccontextmanager
async def running(directory: Path, *, follows: bool = True) -> AsyncGenerator[Running]:
    """Run both; a gateway that does not follow its kubeconfig keeps the certificate it has."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(stage.running_fleet(directory))

        def read_hub() -> client_settings.ConnectionSettings:
            return part_of_hub(directory / "hub", "fleet")

        settings = FleetSettings(
            hub=read_hub(),
            data_dir=directory / "fleet",
            port=0,
            member_cidrs=LOOPBACK,
            read_hub=read_hub if follows else None,
        )
        gateway = await stack.enter_async_context(running_fleet(settings))
        yield Running(fleet, gateway.url, directory)


@dataclass
class Client:
    """Somebody who asks again and again, on a new connection each time."""

    url: str
    context: Callable[[], ssl.SSLContext]
    headers: dict[str, str] = field(default_factory=dict)
    asked: int = 0
    failures: list[str] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            await self.ask()
            await asyncio.sleep(0.05)

    async def ask(self) -> int:
        def once() -> int:
            request = urllib.request.Request(self.url, headers=self.headers)
            with urllib.request.urlopen(request, context=self.context(), timeout=20) as answer:
                return answer.status

        self.asked += 1
        try:
            return await asyncio.to_thread(once)
        except (OSError, urllib.error.URLError) as error:
            self.failures.append(repr(error))
            return getattr(error, "code", 0)


def by_kubeconfig(*files: Path) -> Callable[[], ssl.SSLContext]:
    """Trust and log in as the files say now: as kubectl does each time it is run."""

    def context() -> ssl.SSLContext:
        (cluster,) = read_kubeconfig(files[:1]).clusters.values()
        trusted = cluster.pem("certificate-authority").data
        identity = read_kubeconfig(files[-1:]).settings().identity
        return tls_of(trusted, identity.certificate.data, identity.key.data)

    return context


def tls_of(trusted: bytes, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext:
    material = client_settings.TlsMaterial(trusted, certificate, key)
    return client_settings.client_context(client_settings.Trust(), material)


async def token_of(run: Running, name: str) -> str:
    """Return a token of a ServiceAccount that may read what is asked for."""
    hub = run.fleet.hub.client
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    accounts = ResourcePath(GroupVersionResource("", "v1", "serviceaccounts"), "default")
    if await hub.find(accounts.named(name)) is None:
        await hub.create(accounts, account)
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "cluster-admin",
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        group = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
        await hub.create(ResourcePath(group), binding)
    body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}'
    path = f"{accounts.named(name).path}/token"
    ask = ApiRequest("POST", path, headers=(("Content-Type", "application/json"),), body=body)
    return json.loads((await hub.connection.ask(ask)).body)["status"]["token"]


async def read_json(url: str, trusted: bytes, token: str) -> Any:
    def ask() -> Any:
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, context=tls_of(trusted), timeout=20) as answer:
            return json.load(answer)

    return await asyncio.to_thread(ask)


@pytest.fixture(autouse=True)
def quick_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts read their kubeconfigs as often as the test has patience for."""
    monkeypatch.setattr(client_settings, "KUBECONFIG_SECONDS", 0.5)


async def test_everything_is_replaced_and_no_client_notices(tmp_path: Path) -> None:
    async with running(tmp_path) as run, AsyncExitStack() as stack:
        hub, fleet = Installation(tmp_path / "hub"), Installation(tmp_path / "fleet")
        old_hub, old_fleet = (each.authority_file.read_bytes() for each in (hub, fleet))
        old_ids = hub.load_authorities().key_ids
        first = read_kubeconfig([hub.kubeconfig]).settings().identity
        token = await token_of(run, "robot")
        bearer = {"Authorization": f"Bearer {token}"}
        clients = {
            "kubectl at the hub": Client(run.hub_url + MAPS, by_kubeconfig(hub.kubeconfig)),
            "kubectl at the gateway": Client(
                run.fleet_url + MAPS, by_kubeconfig(fleet.kubeconfig, hub.kubeconfig)
            ),
            "who never reads again whom to trust": Client(
                run.hub_url + MAPS, lambda: tls_of(old_hub), bearer
            ),
            "the same at the gateway": Client(
                run.fleet_url + MAPS, lambda: tls_of(old_fleet), bearer
            ),
        }
        tasks = [asyncio.create_task(each.run()) for each in clients.values()]
        stack.push_async_callback(stop, *tasks)
        settings = read_kubeconfig([hub.kubeconfig]).settings()
        watcher = await stack.enter_async_context(client_for_test(settings))
        watch = await stack.enter_async_context(watching(watcher.connection, f"{MAPS}?watch=1"))
        said: list[str] = []

        async def names_the_robot() -> bool:
            outcome = await rotate(tmp_path, QUICK_AND_BUSY, said.append)
            assert not outcome.is_done
            return "system:serviceaccount:default:robot" in {each.user for each in outcome.users}

        # The robot's token is of the old key, and used all the time.
        await until(names_the_robot)
        keys = await read_json(f"{run.hub_url}/openid/v1/jwks", old_hub, token)
        assert len(keys["keys"]) == 2
        new_token = await token_of(run, "robot")
        assert key_of(new_token) != key_of(token)
        for each in clients.values():
            each.headers = {"Authorization": f"Bearer {new_token}"} if each.headers else {}
        assert watch.is_over is False

        outcome = await rotate(tmp_path, QUICK, said.append)

        assert outcome == Outcome(is_done=True)
        await until(lambda: is_true(watch.is_over))
        assert [each["type"] for each in watch.events if each["type"] == "ERROR"] == []
        assert {name: each.failures for name, each in clients.items()} == {
            each: [] for each in clients
        }
        assert all(each.asked > 20 for each in clients.values())
        # What the old ones signed counts no longer.
        assert hub.load_authorities().key_ids.isdisjoint(old_ids)
        late = Client(
            run.hub_url + MAPS,
            lambda: tls_of(hub.authority_file.read_bytes(), first.certificate.data, first.key.data),
        )
        await until(lambda: is_refused(late))
        stale = Client(run.hub_url + MAPS, lambda: tls_of(old_hub), bearer)
        await until(lambda: is_refused(stale))
        await until_published(run, hub)


QUICK_AND_BUSY = Pace(overlap_seconds=1.0, unused_seconds=61.0)
"""Longer than a run has patience for: it looks once, and says who is in the way."""


async def is_true(value: bool) -> bool:
    return value


async def is_refused(client: Client) -> bool:
    return await client.ask() != 200


def key_of(token: str) -> str:
    return json.loads(base64.urlsafe_b64decode(token.partition(".")[0] + "=="))["kid"]


async def until_published(run: Running, hub: Installation) -> None:
    """Wait until what others read names the new authority, and nothing else."""
    client = run.fleet.hub.client
    places = {
        ("kube-system", "kube-root-ca.crt"): "ca.crt",
        ("default", "kube-root-ca.crt"): "ca.crt",
        ("kube-system", "extension-apiserver-authentication"): "client-ca-file",
    }
    only = hub.authority_file.read_bytes().decode()

    async def is_published() -> bool:
        settings = read_kubeconfig([hub.kubeconfig]).settings()
        async with client_for_test(settings) as fresh:
            found = [
                (await fresh.get(ResourcePath(CONFIG_MAPS, *place)))["data"][key]
                for place, key in places.items()
            ]
        return all(each == only for each in found)

    assert client is not None
    await until(is_published)


async def test_who_does_not_follow_is_named_and_not_shut_out(tmp_path: Path) -> None:
    async with running(tmp_path, follows=False) as run:
        said: list[str] = []
        client = Client(
            run.fleet_url + MAPS,
            by_kubeconfig(tmp_path / "fleet" / "kubeconfig", tmp_path / "hub" / "kubeconfig"),
        )
        assert await client.ask() == 200

        async def names_the_gateway() -> bool:
            outcome = await rotate(tmp_path, QUICK_AND_BUSY, said.append)
            assert not outcome.is_done
            # By way of the gateway: it asks the hub with what it has.
            assert await client.ask() == 200
            return "system:clusterspace-fleet" in {each.user for each in outcome.users}

        await until(names_the_gateway)
        stages = {each.stage() for each in Site.find(tmp_path).rolls()}
        assert stages == {Stage.SIGNING}
        # The gateway has connections of its own open, with a certificate of the old authority.
        assert await client.ask() == 200


async def test_a_server_that_does_not_run_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterspace.roots.rotation.TAKE_OVER_SECONDS", 0.2)
    installation = Installation(tmp_path)
    authorities = installation.prepare(SystemClock().now(), ())
    installation.write_kubeconfig(authorities, "https://127.0.0.1:1", SystemClock().now())
    with pytest.raises(Exception, match="is the server running"):
        await rotate(tmp_path, QUICK, lambda _: None)
    assert len(read_bundle(installation.authority_file.read_bytes())) == 2


async def test_an_agent_follows_the_authority_and_gets_a_new_certificate(tmp_path: Path) -> None:
    async with stage.running_fleet(tmp_path) as fleet:
        member = await fleet.add_member("west")
        await stage.register(fleet, "west", member)
        first = read_registration(await member.client.get(REGISTRATION_PLACE))
        hub = Installation(tmp_path / "hub")
        roll = AuthorityRoll(hub, "hub")
        credentials = AgentCredentials(first.authority, first.keyed)
        settings = first.hub
        connection = Connection(
            settings, clock=SystemClock(), random=Random(1), credentials=credentials
        )
        renewal = RegistrationRenewal(
            member.client, ClusterClient(connection), credentials, trust_seconds=0.0
        )

        async def trusts(key_ids: set[str]) -> bool:
            assert await renewal.look()
            found = read_registration(await member.client.get(REGISTRATION_PLACE))
            assert credentials.authority == found.authority
            return {key_id_of(each) for each in read_bundle(found.authority)} == key_ids

        try:
            old = hub.load_authorities().signing.key_id
            roll.make(SystemClock().now())
            roll.trust()
            (new,) = hub.load_authorities().key_ids - {old}
            await until(lambda: trusts({old, new}))
            assert signer_of(credentials.current.certificate) == old

            roll.sign()

            async def is_renewed() -> bool:
                await renewal.look()
                return signer_of(credentials.current.certificate) == new

            await until(is_renewed)
            roll.drop()
            await until(lambda: trusts({new}))
        finally:
            await connection.close()
