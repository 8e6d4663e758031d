"""Who may patch Clusters wants the members' tokens: by decoys, by moving them, by foreign Secrets.

A trap listens where the attacker says that a member is, and writes down whatever is sent to it.
Everything that connects to members is asked to: the gateway, the hub's relay, the controllers.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from tests.component.fake_clusters import fake_cluster, status
from tests.component.gateway.fleet_site import ROOT, Site, fleet_site, grant

from clusterspace.apis.clusters import USED_WITH
from clusterspace.apiserver.access.agents import scope_of
from clusterspace.apiserver.http.users import User
from clusterspace.client.requests import Answer, ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.client.settings import AuthInfo
from clusterspace.errors import CredentialsUnusable, Forbidden, Invalid, NotFound
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import settings_of
from clusterspace.fleet.membership.push_join import JoinRequest
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, annotations_of, find_at, uid_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.membership import join_cluster
from clusterspace.testing.certificates import loopback_tls
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.steps import until

if TYPE_CHECKING:
    from clusterspace.testing.stage import Side

pytestmark = pytest.mark.asyncio(loop_scope="module")

CORDONS = "jane-token"
"""May do everything with Clusters, as who cordons and labels them may."""
JOINS = "carl-token"
"""May also say where credentials go, but not read or write Secrets."""

CLUSTERS = manifests.cluster_path("west").collection
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "join-push.md"


@dataclass
class Trap:
    """A server that the attacker runs."""

    url: str = ""
    heard: list[str] = field(default_factory=list[str])

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.heard.append(request.headers.get("Authorization", "nothing"))
        return status(404, "NotFound")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    async with fleet_site(tmp_path_factory.mktemp("fleet"), members=("west",)) as running:
        rule: dict[str, Any] = {"apiGroups": ["cluster.karmada.io"], "verbs": ["*"]}
        await grant(running.hub, "jane", [{**rule, "resources": ["clusters"]}], "cordons")
        both = [{**rule, "resources": ["clusters", "clusters/credentials"]}]
        await grant(running.hub, "carl", both, "joins")
        async with running.fleet.controllers():
            yield running


@pytest_asyncio.fixture(loop_scope="module")
async def trap() -> AsyncGenerator[Trap]:
    trap = Trap()
    async with fake_cluster(trap.handle, ssl_context=loopback_tls().context) as port:
        trap.url = f"https://127.0.0.1:{port}"
        yield trap


@asynccontextmanager
async def hub_as(site: Site, token: str) -> AsyncGenerator[ClusterClient]:
    """Reach the hub as somebody."""
    settings = replace(site.hub.settings, identity=AuthInfo(token=token))
    async with client_for_test(settings) as client:
        yield client


async def patch(site: Site, token: str, spec: Object, name: str = "west") -> Object:
    async with hub_as(site, token) as client:
        return await merge(client, manifests.cluster_path(name), {"spec": spec})


async def merge(client: ClusterClient, place: ResourcePath, change: Object) -> Object:
    """Patch an object whatever its version, as kubectl does."""
    kind = ("Content-Type", "application/merge-patch+json")
    body = json.dumps(change).encode()
    answer = await client.connection.ask(
        ApiRequest("PATCH", place.path, headers=(kind,), body=body)
    )
    return json.loads(answer.body)


def decoy(trap: Trap, name: str = "decoy", **spec: Any) -> Object:
    """A Cluster of the attacker's that borrows the credentials of west."""
    borrowed = {
        "secretRef": {"namespace": "karmada-cluster", "name": "west"},
        "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "west-impersonator"},
    }
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {
            "syncMode": "Push",
            "id": name,
            "apiEndpoint": trap.url,
            "insecureSkipTLSVerification": True,
            **borrowed,
            **spec,
        },
    }


async def lead_everybody_to(site: Site, name: str) -> list[Answer]:
    """Have gateway and hub pass a request on to a cluster, and the controllers look at it."""
    before = await site.fleet.cluster(name)
    relayed = f"{manifests.cluster_path(name).path}/proxy/api/v1/namespaces"
    answers = [
        await site.connection(ROOT).exchange(
            ApiRequest("POST", f"/clusterspaces/{name}/api/v1/namespaces")
        ),
        await site.hub.client.connection.exchange(ApiRequest("POST", relayed)),
    ]

    async def is_looked_at() -> bool:
        return bool(find_at(await site.fleet.cluster(name), "status", "conditions"))

    if not find_at(before, "status", "conditions"):
        await until(is_looked_at)
    return answers


async def remove(site: Site, name: str) -> None:
    place = manifests.cluster_path(name)
    held = await site.hub.client.get(place)
    await merge(site.hub.client, place, {"metadata": {"finalizers": None}})
    try:
        await site.hub.client.delete(place, DeleteOptions(uid_of(held)))
        freed = {"metadata": {"finalizers": None}}
        await merge(site.hub.client, place, freed)
    except NotFound:
        return


@pytest.mark.parametrize(
    "spec",
    [
        {"apiEndpoint": "https://10.9.9.9"},
        {"insecureSkipTLSVerification": True},
        {"proxyURL": "http://10.9.9.9:3128"},
        {"proxyHeader": {"X-Route": "mine"}},
        {"secretRef": {"namespace": "karmada-cluster", "name": "east"}},
        {"secretRef": None},
        {"impersonatorSecretRef": None},
        {"apiEndpoint": None},
        {"syncMode": "Pull"},
    ],
    ids=lambda spec: "-".join(f"{key}-{value}"[:30] for key, value in spec.items()),
)
async def test_who_may_patch_clusters_does_not_say_where_their_credentials_go(
    site: Site, spec: Object
) -> None:
    with pytest.raises(Forbidden) as refused:
        await patch(site, CORDONS, spec)

    assert 'cannot update resource "clusters/credentials"' in refused.value.message
    assert f"spec.{next(iter(spec))} says where" in refused.value.message


async def test_who_may_patch_clusters_cordons_labels_and_edits_them(site: Site) -> None:
    taint = {"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}
    await patch(site, CORDONS, {"taints": [taint]})
    await patch(site, CORDONS, {"taints": [], "region": "eu-1", "apiEndpoint": west(site)})
    async with hub_as(site, CORDONS) as client:
        labels = {"metadata": {"labels": {"tier": "gold"}}}
        labelled = await merge(client, manifests.cluster_path("west"), labels)

    assert labelled["metadata"]["labels"]["tier"] == "gold"


def west(site: Site) -> str:
    return site.members["west"].settings.server


async def test_a_decoy_is_not_created_by_who_may_create_clusters(site: Site, trap: Trap) -> None:
    async with hub_as(site, CORDONS) as client:
        with pytest.raises(Forbidden, match="clusters/credentials"):
            await client.create(CLUSTERS, decoy(trap))

    assert trap.heard == []


async def test_a_decoy_with_anothers_secrets_is_sent_nothing_whoever_made_it(
    site: Site, trap: Trap
) -> None:
    async with hub_as(site, JOINS) as client:
        await client.create(CLUSTERS, decoy(trap))
    await site.wait_for("decoy")

    answers = await lead_everybody_to(site, "decoy")

    async def judged() -> Object | None:
        return find_condition((await site.fleet.cluster("decoy"))["status"]["conditions"], "Ready")

    ready = await until(judged)

    assert trap.heard == []
    for answer in answers:
        assert answer.status >= 400
        assert "belongs to another Cluster" in json.loads(answer.body)["message"]
        assert trap.url.removeprefix("https://") not in answer.body.decode()
    assert ready is not None
    assert ready["reason"] == "StatusCollectionFailed"
    assert "Secret west on the hub belongs to another Cluster" in ready["message"]
    await remove(site, "decoy")


async def test_a_decoy_that_takes_the_name_of_a_cluster_that_left_is_sent_nothing(
    site: Site, trap: Trap
) -> None:
    """Secrets that outlive their Cluster are the dead one's, by UID."""
    hub = site.hub.client
    gone = {**manifests.owner_of_secrets(await site.fleet.cluster("west")), "name": "north"}
    left = manifests.credentials_secret("north", {"token": b"north's token"})
    owned = with_metadata(left, ownerReferences=[gone], finalizers=["attacks.test/kept"])
    await hub.create(manifests.secret_path("north").collection, owned)
    ref = {"namespace": "karmada-cluster", "name": "north"}
    async with hub_as(site, JOINS) as client:
        lookalike = decoy(trap, "north", secretRef=ref, impersonatorSecretRef=ref)
        await client.create(CLUSTERS, lookalike)
    await site.wait_for("north")

    answers = await lead_everybody_to(site, "north")

    assert trap.heard == []
    assert all(b"belongs to another Cluster" in each.body for each in answers)
    await remove(site, "north")
    freed = {"metadata": {"finalizers": None}}
    await merge(hub, manifests.secret_path("north"), freed)


async def test_a_cluster_that_is_moved_takes_no_token_along_until_its_secrets_agree(
    site: Site, trap: Trap
) -> None:
    """Whoever moves a Cluster without a right to its Secrets gets nothing of what is in them."""
    moved = {"apiEndpoint": trap.url, "insecureSkipTLSVerification": True}
    await patch(site, JOINS, moved)

    async def is_noticed() -> bool:
        problem = site.running.fleet.directory.problem_with("west")
        return problem is not None and "another address" in problem.why

    await until(is_noticed)
    answers = await lead_everybody_to(site, "west")
    await patch(site, ROOT, {"apiEndpoint": west(site), "insecureSkipTLSVerification": None})
    await until(lambda: can_be_asked(site, "west"))

    assert trap.heard == []
    assert all(b"was given for another address" in each.body for each in answers)
    assert all(trap.url.encode() not in each.body for each in answers)


async def test_a_cluster_that_loses_its_authority_is_not_trusted_by_anybody_elses(
    site: Site,
) -> None:
    """Without the Secret that holds it, any authority of this machine would vouch for a server."""
    held = (await site.fleet.cluster("west"))["spec"]["secretRef"]
    await patch(site, JOINS, {"secretRef": None})

    async def is_noticed() -> bool:
        problem = site.running.fleet.directory.problem_with("west")
        return problem is not None and "no authority that vouches for it" in problem.why

    await until(is_noticed)
    await patch(site, JOINS, {"secretRef": held})
    await until(lambda: can_be_asked(site, "west"))


async def can_be_asked(site: Site, name: str) -> bool:
    return site.running.fleet.directory.problem_with(name) is None


@pytest.mark.parametrize("field", ["secretRef", "impersonatorSecretRef"])
async def test_no_cluster_names_a_secret_outside_the_namespace_of_credentials(
    site: Site, trap: Trap, field: str
) -> None:
    ref = {"namespace": "kube-system", "name": "signing-key"}

    with pytest.raises(Invalid, match=f"spec.{field}.namespace"):
        await site.hub.client.create(
            CLUSTERS, {**decoy(trap), "spec": {**decoy(trap)["spec"], field: ref}}
        )


async def test_a_token_is_not_sent_in_the_clear_even_to_a_cluster_that_was_let_in_before() -> None:
    cluster = {"metadata": {"name": "old"}, "spec": {"apiEndpoint": "http://10.0.0.7:8080"}}
    secret = manifests.credentials_secret("old", {"token": b"secret"})

    with pytest.raises(CredentialsUnusable, match="must begin with https://"):
        settings_of(cluster, secret)


async def test_a_join_as_karmada_does_it_is_used_from_the_moment_its_secrets_are_its_own(
    site: Site, trap: Trap
) -> None:
    """Secrets first, then the Cluster, then owners: the token waits for the last step."""
    hub = site.hub.client
    values = {"caBundle": loopback_tls().authority, "token": b"north's own"}
    for name in ("stock", "stock-impersonator"):
        await hub.create(
            manifests.secret_path(name).collection, manifests.credentials_secret(name, values)
        )
    endpoint = manifests.Endpoint(trap.url)
    made = manifests.cluster("stock", "stock", endpoint, manifests.NOWHERE)
    cluster = await hub.create(CLUSTERS, made)
    await site.wait_for("stock")
    early = await site.connection(ROOT).exchange(
        ApiRequest("POST", "/clusterspaces/stock/api/v1/pods")
    )
    heard_early = list(trap.heard)
    owner = {"metadata": {"ownerReferences": [manifests.owner_of_secrets(cluster)]}}
    for name in ("stock", "stock-impersonator"):
        owned = await merge(hub, manifests.secret_path(name), owner)
        assert annotations_of(owned)[USED_WITH] == trap.url
    await until(lambda: can_be_asked(site, "stock"))
    await lead_everybody_to(site, "stock")

    assert heard_early == []
    assert b"names no Cluster as its owner" in early.body
    assert set(trap.heard) == {"Bearer north's own"}
    ready = find_condition((await site.fleet.cluster("stock"))["status"]["conditions"], "Ready")
    assert ready is not None
    assert ready["reason"] != "StatusCollectionFailed"  # the half of a join was no news
    await remove(site, "stock")


async def test_an_agent_whose_cluster_is_named_like_anothers_secret_reaches_nothing(
    site: Site,
) -> None:
    """The agent of `west-impersonator` would call the Secret of `west` its own."""
    scope = scope_of(User("system:karmada:agent:west-impersonator", ("system:karmada:agents",)))
    named = {**decoy(Trap("https://10.0.0.7")), "metadata": {"name": "west-impersonator"}}

    assert scope is not None
    assert scope.rules("karmada-cluster") == ()
    with pytest.raises(Invalid, match="must not end in -impersonator"):
        await site.hub.client.create(CLUSTERS, named)


async def test_the_roles_in_the_guide_are_all_it_takes_to_join(site: Site) -> None:
    for role in roles_in_the_guide():
        await bind(site, role, "joe")
    joiner = replace(
        site.hub.settings.identity,
        impersonation=replace(site.hub.settings.identity.impersonation, user="joe"),
    )
    side: Side = await site.fleet.add_member("guided")
    hub = replace(site.hub.settings, identity=joiner)
    told: list[str] = []
    for _ in range(2):  # joining again replaces the credentials, with the same rights
        await join_cluster(JoinRequest("guided", side.settings), hub, told.append)

    await site.wait_for("guided")
    await until(lambda: can_be_asked(site, "guided"))
    listed = await site.ask("GET", "/clusterspaces/guided/api/v1/namespaces")
    assert listed.code == 200


async def bind(site: Site, role: Object, user: str) -> None:
    """Give a user a role, where it is."""
    namespace = role["metadata"].get("namespace", "")
    group = "rbac.authorization.k8s.io"
    version = {"apiVersion": f"{group}/v1", "metadata": role["metadata"]}
    binding: Object = {
        **version,
        "kind": f"{role['kind']}Binding",
        "roleRef": {"kind": role["kind"], "apiGroup": group, "name": role["metadata"]["name"]},
        "subjects": [{"kind": "User", "apiGroup": group, "name": user}],
    }
    for each in (role, binding):
        plural = f"{each['kind'].lower()}s"
        place = ResourcePath(GroupVersionResource(group, "v1", plural), namespace)
        await site.hub.client.create(place, each)


def roles_in_the_guide() -> list[Object]:
    blocks = [each.partition("```")[0] for each in GUIDE.read_text().split("```yaml\n")[1:]]
    found = next(each for each in blocks if "clusters/credentials" in each)
    return [msgspec.yaml.decode(each) for each in found.split("---\n")]
