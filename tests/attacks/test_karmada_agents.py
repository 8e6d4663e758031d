"""What `hub --accept-karmada-agents` gives away to who holds a token of Karmada's, and what not.

Each request is one that `karmadactl register` and karmada-agent make, or one step beyond. The same
requests are made at a hub that does not accept them.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.component.identity_hub import REQUESTS, Answer, IdentityHub, running_identity_hub
from tests.unit.apiserver.identity.certificates.requested import key, pem, signing_request

from clusterspace.apiserver.identity.bootstrap_tokens import cluster_token_secret
from clusterspace.kube.objects import Object
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = "root-token"
TOKEN, BOUND = f"plainx.{'p' * 16}", f"boundx.{'b' * 16}"
GROUP = "system:bootstrappers:karmada:default-cluster-token"
INSTALLER = "system:karmada:agent:rbac-generator"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases"
YEAR = 365 * 24 * 3600

Certificate = tuple[Path, Path]


@dataclass(frozen=True)
class Site:
    """A hub, and somebody with a token of Karmada's."""

    hub: IdentityHub
    directory: Path

    async def ask(self, user: str, name: str, token: str = TOKEN, **spec: Any) -> Object:
        """Ask for a certificate as `register` does; return the request once it has been seen."""
        body = signing_request(
            pem(names=(user,)),
            name,
            signerName="kubernetes.io/kube-apiserver-client",
            usages=["digital signature", "key encipherment", "client auth"],
            **{"expirationSeconds": YEAR, **spec},
        )
        made = await self.hub.ask("POST", REQUESTS, body, token=token)
        assert made.code == 201, made.body
        # Requests are settled one after the other: what is denied after it shows that it had its
        # turn.
        probe = f"probe-of-{name}"
        denied = signing_request(pem(names=("nobody",), groups=()), probe, usages=["any"])
        made = await self.hub.ask("POST", REQUESTS, denied, token=ROOT)
        assert made.code == 201, made.body
        await self._approve(made.body)

        async def settled() -> bool:
            found = (await self.hub.ask("GET", f"{REQUESTS}/{probe}", token=ROOT)).body
            return any(each["type"] == "Failed" for each in found["status"]["conditions"])

        await until(settled)
        return (await self.hub.ask("GET", f"{REQUESTS}/{name}", token=ROOT)).body

    async def _approve(self, request: Object) -> None:
        condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "yes"}
        body = {**request, "status": {"conditions": [condition]}}
        path = f"{REQUESTS}/{request['metadata']['name']}/approval"
        assert (await self.hub.ask("PUT", path, body, token=ROOT)).code == 200

    async def certificate(
        self, user: str, name: str, token: str = TOKEN, **spec: Any
    ) -> Certificate:
        """Return the files of a certificate that must be issued."""
        request = await self.ask(user, name, token, **spec)
        files = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        files[0].write_bytes(base64.b64decode(request["status"]["certificate"]))
        files[1].write_bytes(
            key().private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    async def installer(self, cluster: str, suffix: str = "1a2b3") -> Certificate:
        return await self.certificate(INSTALLER, f"agent-rbac-generator-{cluster}{suffix}")

    async def agent(self, cluster: str, suffix: str = "1a2b3") -> Certificate:
        return await self.certificate(agent_of(cluster), f"{cluster}-{suffix}")

    async def make_cluster(self, name: str, mode: str = "Pull") -> None:
        body = {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster"}
        spec = {"syncMode": mode, "id": f"id-of-{name}"}
        whole = {**body, "metadata": {"name": name}, "spec": spec}
        made = await self.hub.ask("POST", CLUSTERS, whole, token=ROOT)
        assert made.code == 201, made.body

    async def write(self, files: Certificate, path: str, body: Object) -> Answer:
        return await self.hub.ask("POST", path, body, certificate=files)

    async def read(self, files: Certificate, path: str) -> Answer:
        return await self.hub.ask("GET", path, certificate=files)


def agent_of(cluster: str) -> str:
    return f"system:karmada:agent:{cluster}"


def karmadas_token(token: str, **annotations: str) -> Object:
    token_id, _, secret = token.partition(".")
    metadata = {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {**metadata, "annotations": annotations},
        "stringData": {
            "token-id": token_id,
            "token-secret": secret,
            "expiration": "2999-01-01T00:00:00Z",
            "usage-bootstrap-signing": "true",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": GROUP,
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sites(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[dict[bool, Site]]:
    """A hub that accepts Karmada's agents, and one that does not."""
    found: dict[bool, Site] = {}
    async with AsyncExitStack() as stack:
        for accepts in (True, False):
            directory = tmp_path_factory.mktemp("hub")
            hub = await stack.enter_async_context(
                running_identity_hub(directory, accepts_karmada_agents=accepts)
            )
            bound = {"clusterspace.io/cluster": "bound"}
            for secret in (karmadas_token(TOKEN), karmadas_token(BOUND, **bound)):
                path = "/api/v1/namespaces/kube-system/secrets"
                assert (await hub.ask("POST", path, secret, token=ROOT)).code == 201
            for namespace in ("karmada-cluster", "karmada-system"):
                body = {"metadata": {"name": namespace}}
                await hub.ask("POST", "/api/v1/namespaces", body, token=ROOT)
            found[accepts] = Site(hub, directory)
            await found[accepts].make_cluster("there")
        yield found


@pytest.fixture(name="site")
def accepting_site(sites: dict[bool, Site]) -> Site:
    return sites[True]


# -- off: as if there were no such programs --------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "name"),
    [(INSTALLER, "agent-rbac-generator-west1a2b3"), (agent_of("west"), "west-1a2b3")],
)
async def test_a_hub_that_was_not_told_to_signs_nothing_for_them(
    sites: dict[bool, Site], user: str, name: str
) -> None:
    assert (await sites[False].ask(user, name))["status"] == {}


# -- on: the token ---------------------------------------------------------------------------------


async def test_a_token_is_for_no_cluster_that_is_there(site: Site) -> None:
    installer = await site.ask(INSTALLER, "agent-rbac-generator-there1a2b3")
    agent = await site.ask(agent_of("there"), "there-1a2b3")

    assert (installer["status"], agent["status"]) == ({}, {})


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ("system:admin", "west-aaaaa"),
        (INSTALLER, "west-aaaac"),
        (INSTALLER, "agent-rbac-generator-x"),
        (INSTALLER, "agent-rbac-generator-12345"),
        (f"{INSTALLER}:west", "agent-rbac-generator-west1a2b4"),
    ],
)
async def test_a_token_makes_nobody_else(site: Site, user: str, name: str) -> None:
    asked = await site.ask(user, name)

    assert "certificate" not in asked["status"]


async def test_a_token_that_an_operator_bound_to_a_cluster_is_for_that_one_and_once(
    site: Site,
) -> None:
    other = await site.ask(agent_of("elsewhere"), "elsewhere-1a2b3", BOUND)
    another = await site.ask(INSTALLER, "agent-rbac-generator-elsewhere1a2b3", BOUND)
    first = await site.ask(INSTALLER, "agent-rbac-generator-bound1a2b3", BOUND)
    agent = await site.ask(agent_of("bound"), "bound-1a2b3", BOUND)
    body = signing_request(pem(names=(agent_of("bound"),)), "bound-again")
    again = await site.hub.ask("POST", REQUESTS, body, token=BOUND)

    assert [each["status"]["conditions"][0]["type"] for each in (other, another)] == ["Denied"] * 2
    assert first["status"]["certificate"]
    assert agent["status"]["certificate"]
    assert again.code == 401


async def test_a_token_of_ours_still_gets_a_day(site: Site) -> None:
    token = f"oursxx.{'o' * 26}"
    secret = cluster_token_secret(token, "ours", site.hub.state.clock.now())
    path = "/api/v1/namespaces/kube-system/secrets"
    assert (await site.hub.ask("POST", path, secret, token=ROOT)).code == 201

    asked = await site.ask(agent_of("ours"), "ours-1a2b3", token)

    assert asked["status"]["conditions"][0]["type"] == "Denied"


# -- on: the installer -----------------------------------------------------------------------------


async def test_the_installer_is_one_clusters_for_half_an_hour(site: Site) -> None:
    files = await site.installer("short")
    issued = x509.load_pem_x509_certificate(files[0].read_bytes())

    assert issued.subject.rfc4514_string().startswith(f"CN={INSTALLER}:short,")
    life = issued.not_valid_after_utc - issued.not_valid_before_utc
    assert life <= timedelta(minutes=35)


def role(name: str, *rules: Object, **more: Any) -> Object:
    return {"metadata": {"name": name, **more}, "rules": list(rules)}


def binding(name: str, role_name: str, *subjects: str, kind: str = "User") -> Object:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role_name},
        "subjects": [{"apiGroup": group, "kind": kind, "name": each} for each in subjects],
    }


SERVICES = {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]}
SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
OWN = "system:karmada:inst:agent"


async def test_the_installer_writes_what_karmadas_agents_need(site: Site) -> None:
    files = await site.installer("inst")

    made = await site.write(files, f"{RBAC}/clusterroles", role(OWN, SERVICES))
    bound = await site.write(
        files, f"{RBAC}/clusterrolebindings", binding(OWN, OWN, agent_of("inst"))
    )

    assert (made.code, bound.code) == (201, 201), (made.body, bound.body)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{RBAC}/clusterroles", role("system:karmada:there:agent", SERVICES)),
        (f"{RBAC}/clusterroles", role("cluster-admin-2", SERVICES)),
        (f"{RBAC}/clusterroles", role("system:karmada:evil:agent", SECRETS)),
        (
            f"{RBAC}/clusterroles",
            role(
                "system:karmada:evil:agent",
                SERVICES,
                labels={"rbac.authorization.k8s.io/aggregate-to-admin": "true"},
            ),
        ),
        (
            f"{RBAC}/clusterrolebindings",
            binding("system:karmada:evil:agent", "cluster-admin", agent_of("evil")),
        ),
        (
            f"{RBAC}/clusterrolebindings",
            binding("system:karmada:evil:agent", "view", "jane"),
        ),
        (
            f"{RBAC}/clusterrolebindings",
            binding("system:karmada:evil:agent", "view", "system:authenticated", kind="Group"),
        ),
        (f"{RBAC}/namespaces/default/roles", role("system:karmada:evil:agent", SERVICES)),
        (f"{RBAC}/namespaces/karmada-es-there/roles", role("system:karmada:evil:agent-work")),
        ("/api/v1/namespaces", {"metadata": {"name": "karmada-es-there2"}}),
        ("/api/v1/namespaces", {"metadata": {"name": "shop"}}),
        ("/api/v1/namespaces/karmada-cluster/secrets", {"metadata": {"name": "evil"}}),
        (CLUSTERS, {"metadata": {"name": "evil"}, "spec": {"syncMode": "Pull"}}),
    ],
)
async def test_the_installer_writes_nothing_else(site: Site, path: str, body: Object) -> None:
    files = await installer_of_evil(site)

    answer = await site.write(files, path, body)

    assert answer.code == 403, answer.body


@pytest.mark.parametrize(
    "path",
    [
        CLUSTERS,
        f"{CLUSTERS}/there",
        "/api/v1/namespaces",
        "/api/v1/namespaces/default",
        "/api/v1/secrets",
        "/api/v1/namespaces/kube-system/secrets/bootstrap-token-plainx",
        "/api/v1/namespaces/karmada-cluster/secrets/there",
        f"{RBAC}/clusterroles",
        f"{RBAC}/clusterroles/cluster-admin",
        REQUESTS,
    ],
)
async def test_the_installer_reads_nothing_else(site: Site, path: str) -> None:
    files = await installer_of_evil(site)

    assert (await site.read(files, path)).code == 403


async def installer_of_evil(site: Site) -> Certificate:
    """Return the same installer to every test that only looks at what it may not."""
    files = site.directory / "evil.crt", site.directory / "evil.key"
    if not files[0].exists():
        made = await site.installer("evil")
        for source, target in zip(made, files, strict=True):
            target.write_bytes(source.read_bytes())
    return files


# -- on: the agent ---------------------------------------------------------------------------------


async def test_an_agent_that_lists_all_clusters_is_shown_its_own(site: Site) -> None:
    files = await site.agent("looker")
    await site.make_cluster("looker")

    async def names(query: str = "") -> list[str]:
        answer = await site.read(files, f"{CLUSTERS}{query}")
        assert answer.code == 200, answer.body
        return [each["metadata"]["name"] for each in answer.body["items"]]

    assert await names() == ["looker"]
    assert await names("?limit=500&resourceVersion=0") == ["looker"]
    assert "there" not in await names("?fieldSelector=metadata.name%3Dthere")
    assert "there" not in await names("?fieldSelector=metadata.name%21%3Dlooker")
    assert "bound" not in await names("?labelSelector=")
    assert (await site.read(files, f"{CLUSTERS}/there")).code == 403


async def test_an_agent_that_lists_all_services_is_shown_those_of_the_system(site: Site) -> None:
    files = await site.agent("server")
    await site.make_cluster("server")
    for namespace in ("default", "karmada-system"):
        spec = {"ports": [{"port": 80}]}
        body = {"metadata": {"name": f"in-{namespace}"}, "spec": spec}
        made = await site.hub.ask(
            "POST", f"/api/v1/namespaces/{namespace}/services", body, token=ROOT
        )
        assert made.code == 201, made.body

    listed = await site.read(files, "/api/v1/services")
    tried = await site.read(files, "/api/v1/services?fieldSelector=metadata.namespace%3Ddefault")
    inside = await site.read(files, "/api/v1/namespaces/default/services")
    one = await site.read(files, "/api/v1/namespaces/karmada-system/services/in-karmada-system")

    assert [each["metadata"]["name"] for each in listed.body["items"]] == ["in-karmada-system"]
    assert (tried.code, inside.code, one.code) == (403, 403, 403)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", f"{CLUSTERS}/there"),
        ("DELETE", f"{CLUSTERS}/ranger"),
        ("DELETE", CLUSTERS),
        ("GET", "/api/v1/namespaces/default"),
        ("GET", "/api/v1/namespaces"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases"),
        (
            "GET",
            "/apis/coordination.k8s.io/v1/namespaces/karmada-system/leases/karmada-agent-there",
        ),
        ("GET", "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-there/works"),
        ("DELETE", "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-ranger/works"),
        ("GET", "/api/v1/namespaces/karmada-cluster/secrets/there"),
    ],
)
async def test_an_agent_reaches_nothing_of_others(site: Site, method: str, path: str) -> None:
    files = site.directory / "ranger-1a2b3.crt", site.directory / "ranger-1a2b3.key"
    if not files[0].exists():
        files = await site.agent("ranger")

    assert (await site.hub.ask(method, path, certificate=files)).code == 403


async def test_an_agent_elects_its_leader_and_takes_no_other_lease(site: Site) -> None:
    files = await site.agent("elector")
    path = LEASES

    own = await site.write(files, path, {"metadata": {"name": "karmada-agent-elector"}})
    others = await site.write(files, path, {"metadata": {"name": "karmada-scheduler"}})

    assert (own.code, others.code) == (201, 403), (own.body, others.body)


# -- on: certificates that live for a year ---------------------------------------------------------


async def test_who_asked_for_a_name_before_is_not_its_agent_once_it_registers(site: Site) -> None:
    early = await site.agent("later", "aaaaa")
    await asyncio.sleep(2.1)  # certificates are told apart by the second they were issued in

    late = await site.agent("later", "bbbbb")

    path = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-later/works"
    assert (await site.read(early, path)).code == 401
    assert (await site.read(late, path)).code == 200


async def test_who_asked_for_a_name_is_not_the_agent_of_a_cluster_that_is_pushed_to(
    site: Site,
) -> None:
    files = await site.agent("pushed")
    await asyncio.sleep(1.1)  # as above
    await site.make_cluster("pushed", "Push")

    answer = await site.read(files, "/api/v1/namespaces/karmada-cluster/secrets/pushed")

    assert answer.code == 401


async def test_a_year_is_over_when_its_cluster_leaves(site: Site) -> None:
    files = await site.agent("leaver")
    issued = x509.load_pem_x509_certificate(files[0].read_bytes())
    assert issued.not_valid_after_utc - issued.not_valid_before_utc > timedelta(days=364)
    await site.make_cluster("leaver")
    assert (await site.read(files, f"{CLUSTERS}/leaver")).code == 200

    assert (await site.hub.ask("DELETE", f"{CLUSTERS}/leaver", token=ROOT)).code == 200

    async def refused() -> bool:
        return (await site.read(files, f"{CLUSTERS}/leaver")).code == 401

    assert await until(refused)
