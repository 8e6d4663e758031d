"""The gateway or the controllers are taken over: how far does what they log in with lead?

The hub gives each part a certificate of its own. Here the attacker holds one of them, or would like
to, and tries everything the part does not need. Whether they can still do what they need is shown
by everything else: all flows run under these identities.
"""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusterspace.apis.identities import AGENT_SIGNER, COMPONENTS, CONTROLLERS_USER, FLEET_USER
from clusterspace.client.requests import ApiRequest
from clusterspace.client.resources import ClusterClient
from clusterspace.fleet.gateway.fanout import exchange
from clusterspace.fleet.membership import manifests
from clusterspace.roots.installation import Installation
from clusterspace.testing.hubs import client_for_test, part_of_hub
from clusterspace.testing.stage import Fleet, Side, running_fleet
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MERGE = "application/merge-patch+json"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CERTIFICATES = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
SHOP = "/api/v1/namespaces/shop"
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


class Attempt(NamedTuple):
    """One request of the attacker's."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"


@dataclass
class Theft:
    """A hub with something worth stealing, and what the attacker holds."""

    fleet: Fleet
    member: Side
    clients: dict[str, ClusterClient]

    async def ask(
        self,
        who: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        acting_as: tuple[tuple[str, str], ...] = (),
    ) -> tuple[int, Any]:
        raw = None if body is None else json.dumps(body).encode()
        headers = (*acting_as, ("Content-Type", content_type)) if raw else acting_as
        ask = ApiRequest(method, path, headers=headers, body=raw)
        answer = await exchange(self.clients[who].connection, ask)
        return answer.status, json.loads(answer.body)

    async def make(self, path: str, body: dict[str, Any]) -> None:
        code, answer = await self.ask("admin", "POST", path, body)
        assert code == 201, answer


def named(api_version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **more}


def bound(name: str, role: str, user: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return named(
        f"{group}/v1",
        "ClusterRoleBinding",
        name,
        roleRef={"apiGroup": group, "kind": "ClusterRole", "name": role},
        subjects=[{"apiGroup": group, "kind": "User", "name": user}],
    )


def role(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return named("rbac.authorization.k8s.io/v1", "ClusterRole", name, rules=rules)


def request_for(user: str, signer: str = "kubernetes.io/kube-apiserver-client") -> dict[str, Any]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user)])
    signed = (
        x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    )
    pem = signed.public_bytes(serialization.Encoding.PEM)
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": signer,
        "usages": ["client auth"],
    }
    return named("certificates.k8s.io/v1", "CertificateSigningRequest", "wish", spec=spec)


POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "web:1"}]},
}
DEPLOYMENT = named(
    "apps/v1",
    "Deployment",
    "web",
    spec={"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": POD},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def theft(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Theft]:
    directory = tmp_path_factory.mktemp("theft")
    async with (
        running_fleet(directory) as fleet,
        client_for_test(part_of_hub(directory / "hub", "fleet")) as gateway,
        client_for_test(part_of_hub(directory / "hub", "controllers")) as controllers,
    ):
        clients = {
            "admin": fleet.hub.client,
            "fleet": gateway,
            "controllers": controllers,
        }
        member = await fleet.add_member("west")
        await fleet.join("west", member)
        theft = Theft(fleet, member, clients)
        await theft.make("/api/v1/namespaces", named("v1", "Namespace", "shop"))
        await theft.make(f"{SHOP}/secrets", named("v1", "Secret", "till", stringData={"a": "b"}))
        await theft.make(f"{SHOP}/configmaps", named("v1", "ConfigMap", "web", data={"a": "b"}))
        await theft.make(f"{SHOP}/serviceaccounts", named("v1", "ServiceAccount", "clerk"))
        await theft.make(DEPLOYMENTS, DEPLOYMENT)
        await theft.make(f"{RBAC}/clusterroles", role("owner", EVERYTHING))
        await theft.make(CERTIFICATES, request_for("mallory"))
        yield theft


ADMIN = (("Impersonate-User", "kubernetes-admin"), ("Impersonate-Group", "system:masters"))
APPROVAL = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "me"}]}}
TOKEN = named("authentication.k8s.io/v1", "TokenRequest", "", spec={})
WEB_POD = {**named("v1", "Pod", "web"), "spec": POD["spec"]}
TO_ME = {"subjects": bound("", "", FLEET_USER)["subjects"]}
PATCHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["patch"]}]
READING = [{"apiGroups": ["*"], "resources": ["secrets"], "verbs": ["get"]}]

DELETING = [
    {"apiGroups": [""], "resources": ["namespaces", "secrets"], "verbs": ["delete"]},
    {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["rolebindings"],
        "verbs": ["delete"],
    },
]
REPORTING = [{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters"], "verbs": ["get"]}]
GATHERING = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
GATHERED = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "1"}

BOTH: dict[str, tuple[Any, ...]] = {
    "make a token for a service account": ("POST", f"{SHOP}/serviceaccounts/clerk/token", TOKEN),
    "approve a certificate": ("PATCH", f"{CERTIFICATES}/wish/approval", APPROVAL, MERGE),
    "make itself an administrator": (
        "POST",
        f"{RBAC}/clusterrolebindings",
        bound("me", "cluster-admin", FLEET_USER),
    ),
    "join the administrators' binding": (
        "PATCH",
        f"{RBAC}/clusterrolebindings/cluster-admin",
        TO_ME,
        MERGE,
    ),
    "widen the gateway's role": (
        "PATCH",
        f"{RBAC}/clusterroles/{FLEET_USER}",
        {"rules": EVERYTHING},
        MERGE,
    ),
    "widen the controllers' role": (
        "PATCH",
        f"{RBAC}/clusterroles/{CONTROLLERS_USER}",
        {"rules": EVERYTHING},
        MERGE,
    ),
    "narrow everybody's role": ("PATCH", f"{RBAC}/clusterroles/view", {"rules": []}, MERGE),
    "remove a role": ("DELETE", f"{RBAC}/clusterroles/owner"),
    "remove a definition": ("DELETE", f"{DEFINITIONS}/works.work.karmada.io"),
    "remove somebody's namespace": ("DELETE", "/api/v1/namespaces/shop"),
    "remove a workload": ("DELETE", f"{DEPLOYMENTS}/web"),
    "remove all workloads": ("DELETE", DEPLOYMENTS),
    "remove a Secret": ("DELETE", f"{SHOP}/secrets/till"),
    "remove all Secrets": ("DELETE", f"{SHOP}/secrets"),
    "change a workload": ("PATCH", f"{DEPLOYMENTS}/web", {"spec": {"replicas": 9}}, MERGE),
    "scale a workload": ("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 9}}, MERGE),
    "change a ConfigMap": ("PATCH", f"{SHOP}/configmaps/web", {"data": {"a": "c"}}, MERGE),
    "label somebody's object": (
        "PATCH",
        f"{SHOP}/configmaps/web",
        {"metadata": {"labels": {"team": "mine"}}},
        MERGE,
    ),
    "own somebody's object": (
        "PATCH",
        f"{SHOP}/configmaps/web",
        {"metadata": {"ownerReferences": [OWNER]}},
        MERGE,
    ),
    "run a pod": ("POST", f"{SHOP}/pods", WEB_POD),
    "write a Secret": ("POST", f"{SHOP}/secrets", named("v1", "Secret", "new")),
    "write a ConfigMap": ("POST", f"{SHOP}/configmaps", named("v1", "ConfigMap", "new")),
    "make a namespace": ("POST", "/api/v1/namespaces", named("v1", "Namespace", "mine")),
    "reach a member by the hub": ("GET", f"{CLUSTERS}/west/proxy/api/v1/namespaces"),
    "change a member by the hub": ("DELETE", f"{CLUSTERS}/west/proxy/api/v1/namespaces/default"),
}  # fmt: skip

FLEET_ONLY: dict[str, tuple[Any, ...]] = {
    "read somebody's Secret": ("GET", f"{SHOP}/secrets/till"),
    "read all Secrets": ("GET", "/api/v1/secrets"),
    "read the hub's Secrets": ("GET", "/api/v1/namespaces/kube-system/secrets"),
    "read a ConfigMap": ("GET", f"{SHOP}/configmaps/web"),
    "read workloads": ("GET", "/apis/apps/v1/deployments"),
    "change credentials of a member": (
        "PATCH",
        "/api/v1/namespaces/karmada-cluster/secrets/west",
        {"data": {}},
        MERGE,
    ),
    "change a Cluster": ("PATCH", f"{CLUSTERS}/west", {"spec": {"taints": []}}, MERGE),
    "remove a Cluster": ("DELETE", f"{CLUSTERS}/west"),
}

CONTROLLERS_ONLY: dict[str, tuple[Any, ...]] = {
    "lend out what it holds on everything": (
        "POST",
        f"{RBAC}/clusterroles",
        role("fleet-role-mallory", PATCHING),
    ),
    "lend out what it reads": (
        "POST",
        f"{RBAC}/clusterroles",
        role("fleet-role-mallory", READING),
    ),
    "lend out what it removes": (
        "POST",
        f"{RBAC}/clusterroles",
        role("fleet-role-mallory", DELETING),
    ),
    "lend out what it removes, in a namespace of its own": (
        "POST",
        f"{RBAC}/namespaces/karmada-cluster/roles",
        {**role("fleet-role-mallory", DELETING), "kind": "Role"},
    ),
    "gather the rights of others": (
        "POST",
        f"{RBAC}/clusterroles",
        {**role("fleet-role-mallory", []), "aggregationRule": GATHERING},
    ),
    "put rights into everybody's role": (
        "POST",
        f"{RBAC}/clusterroles",
        {
            **role("fleet-role-mallory", REPORTING),
            "metadata": {"name": "fleet-role-mallory", "labels": GATHERED},
        },
    ),
    "bind somebody to a great role": (
        "POST",
        f"{RBAC}/clusterrolebindings",
        bound("fleet-rolebinding-mallory", "owner", "mallory"),
    ),
    "change credentials of a member": (
        "PATCH",
        "/api/v1/namespaces/karmada-cluster/secrets/west",
        {"data": {"token": "AAAA"}},
        MERGE,
    ),
    "have somebody review tokens for it": (
        "POST",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        named("authentication.k8s.io/v1", "TokenReview", "", spec={"token": "x"}),
    ),
    "say what a namespace is like": (
        "PATCH",
        "/api/v1/namespaces/shop/status",
        {"status": {"phase": "Terminating"}},
        MERGE,
    ),
    "end a namespace that waits": (
        "PUT",
        "/api/v1/namespaces/shop/finalize",
        named("v1", "Namespace", "shop", spec={"finalizers": []}),
    ),
    "write leases of others": (
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/shop/leases",
        named("coordination.k8s.io/v1", "Lease", "leader"),
    ),
}

ATTEMPTS = [
    *(("fleet", what) for what in (*BOTH, *FLEET_ONLY)),
    *(("controllers", what) for what in (*BOTH, *CONTROLLERS_ONLY)),
]


@pytest.mark.parametrize(("part", "what"), ATTEMPTS)
async def test_a_part_that_is_taken_over_cannot(theft: Theft, part: str, what: str) -> None:
    own = FLEET_ONLY if part == "fleet" else CONTROLLERS_ONLY
    attempt = Attempt(*{**BOTH, **own}[what])

    code, answer = await theft.ask(
        part, attempt.method, attempt.path, attempt.body, content_type=attempt.content_type
    )

    assert code == 403, answer
    assert answer["reason"] == "Forbidden"


WHOM = {
    "an administrator": ADMIN,
    "a user": (("Impersonate-User", "jane"),),
    "a service account": (("Impersonate-User", "system:serviceaccount:shop:clerk"),),
}


@pytest.mark.parametrize("whom", WHOM)
async def test_the_controllers_act_for_nobody(theft: Theft, whom: str) -> None:
    code, _ = await theft.ask("controllers", "GET", "/api/v1/namespaces", acting_as=WHOM[whom])

    assert code == 403


ISSUED = {
    "the controllers": (("Impersonate-User", CONTROLLERS_USER),),
    "itself": (("Impersonate-User", FLEET_USER),),
    "an agent": (("Impersonate-User", "system:karmada:agent:west"),),
    "an agent by its group": (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "system:karmada:agents"),
    ),
}


@pytest.mark.parametrize("whom", ISSUED)
async def test_the_gateway_acts_for_people_and_never_as_a_part_or_an_agent(
    theft: Theft, whom: str
) -> None:
    works = await theft.ask("fleet", "GET", "/api/v1/namespaces", acting_as=ADMIN)
    refused = await theft.ask("fleet", "GET", CLUSTERS, acting_as=ISSUED[whom])

    assert works[0] == 200
    assert refused[0] == 403
    assert "known by certificates alone" in refused[1]["message"]


@pytest.mark.parametrize("user", COMPONENTS.values())
@pytest.mark.parametrize("signer", ["kubernetes.io/kube-apiserver-client", AGENT_SIGNER])
async def test_nobody_asks_for_the_certificate_of_a_part(
    theft: Theft, user: str, signer: str
) -> None:
    code, answer = await theft.ask("admin", "POST", CERTIFICATES, request_for(user, signer))

    assert code == 403
    assert "system:clusterspace-" in answer["message"]


async def test_more_roles_do_not_lift_the_limits_of_a_part(theft: Theft) -> None:
    """An operator who helps himself with cluster-admin opens less than everything."""
    path = f"{RBAC}/clusterrolebindings"
    for user in COMPONENTS.values():
        await theft.make(path, bound(user.replace(":", "-"), "cluster-admin", user))

    codes = [
        (await theft.ask("fleet", "GET", f"{SHOP}/secrets/till"))[0],
        (await theft.ask("controllers", "DELETE", "/api/v1/namespaces/shop"))[0],
        (await theft.ask("controllers", "GET", f"{CLUSTERS}/west/proxy/version"))[0],
        (
            await theft.ask(
                "controllers", "POST", f"{RBAC}/clusterroles", role("fleet-role-me", DELETING)
            )
        )[0],
        (
            await theft.ask(
                "controllers", "PATCH", f"{SHOP}/secrets/till", {"data": {}, "type": "x"},
                content_type=MERGE,
            )
        )[0],
    ]  # fmt: skip
    for user in COMPONENTS.values():
        await theft.ask("admin", "DELETE", f"{path}/{user.replace(':', '-')}")

    assert codes == [403] * 5


EVERYBODY = (
    ("Group", "system:unauthenticated"),
    ("Group", "system:authenticated"),
    ("Group", "system:serviceaccounts"),
    ("Group", "system:masters"),
    ("User", "system:anonymous"),
)


async def test_the_controllers_grant_to_somebody_and_never_to_everybody(theft: Theft) -> None:
    """What may be granted to an agent is granted to it, and the same to all is refused."""
    name, path = "fleet-role-mallory", f"{RBAC}/clusterrolebindings"
    binding = bound("fleet-rolebinding-mallory", name, "mallory")
    made = await theft.ask("controllers", "POST", f"{RBAC}/clusterroles", role(name, REPORTING))
    codes: list[int] = []
    for kind, everybody in EVERYBODY:
        subject = {**binding["subjects"][0], "kind": kind, "name": everybody}
        subjects = [*binding["subjects"], subject]
        answer = await theft.ask("controllers", "POST", path, {**binding, "subjects": subjects})
        codes.append(answer[0])
    to_one = await theft.ask("controllers", "POST", path, binding)
    widened = await theft.ask(
        "controllers",
        "PATCH",
        f"{path}/fleet-rolebinding-mallory",
        {"subjects": [{**binding["subjects"][0], "kind": "Group", "name": EVERYBODY[0][1]}]},
        content_type=MERGE,
    )
    gathered = await theft.ask(
        "controllers",
        "PATCH",
        f"{RBAC}/clusterroles/{name}",
        {"metadata": {"labels": GATHERED}},
        content_type=MERGE,
    )
    for each in (f"{path}/fleet-rolebinding-mallory", f"{RBAC}/clusterroles/{name}"):
        assert (await theft.ask("controllers", "DELETE", each))[0] == 200

    assert (made[0], to_one[0]) == (201, 201)
    assert codes == [403] * len(EVERYBODY)
    assert (widened[0], gathered[0]) == (403, 403)


async def test_the_controllers_may_still_mark_any_template_and_sum_up_its_status(
    theft: Theft,
) -> None:
    mark = {"metadata": {"labels": {"propagationpolicy.karmada.io/permanent-id": "1"}}}
    status = {"status": {"replicas": 3}}

    marked = [
        await theft.ask("controllers", "PATCH", path, mark, content_type=MERGE)
        for path in (f"{DEPLOYMENTS}/web", f"{SHOP}/secrets/till", f"{RBAC}/clusterroles/owner")
    ]
    summed = await theft.ask(
        "controllers", "PATCH", f"{DEPLOYMENTS}/web/status", status, content_type=MERGE
    )

    assert [code for code, _ in (*marked, summed)] == [200] * 4


BESIDE_A_STATUS = {
    "labels": {"team": "mine"},
    "annotations": {"example.com/a": "b"},
    "finalizers": ["example.com/hold"],
    "ownerReferences": [OWNER],
}


@pytest.mark.parametrize("field", BESIDE_A_STATUS)
async def test_nothing_comes_in_beside_a_status_that_is_summed_up(theft: Theft, field: str) -> None:
    path, metadata = f"{DEPLOYMENTS}/web", {field: BESIDE_A_STATUS[field]}
    patch = {"metadata": metadata, "status": {"replicas": 2}}
    before = await theft.ask("admin", "GET", path)

    refused = await theft.ask("controllers", "PATCH", f"{path}/status", patch, content_type=MERGE)

    assert refused[0] == 403, refused[1]
    assert await theft.ask("admin", "GET", path) == before


async def test_only_the_owner_reads_the_files_that_say_who_a_part_is(theft: Theft) -> None:
    installation = Installation(theft.fleet.directory / "hub")
    files = [installation.component_kubeconfig(part) for part in COMPONENTS]

    assert [oct(each.stat().st_mode & 0o777) for each in files] == ["0o600", "0o600"]
    assert [oct(each.parent.stat().st_mode & 0o777) for each in files] == ["0o700", "0o700"]


def subject_of(kubeconfig: Path) -> str:
    (line,) = (
        each for each in kubeconfig.read_text().splitlines() if "client-certificate-data" in each
    )
    pem = base64.b64decode(line.split(":", 1)[1].strip().strip("'\""))
    return x509.load_pem_x509_certificate(pem).subject.rfc4514_string()


async def test_the_certificate_of_a_part_names_the_part_and_no_group(theft: Theft) -> None:
    installation = Installation(theft.fleet.directory / "hub")

    subjects = [subject_of(installation.component_kubeconfig(part)) for part in COMPONENTS]

    assert subjects == [f"CN={user}" for user in COMPONENTS.values()]


async def test_a_role_that_grants_more_than_the_controllers_hold_is_placed_all_the_same(
    theft: Theft,
) -> None:
    """They carry it: whether it may be written was asked when its author wrote it."""
    path = "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies"
    selector = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "name": "owner",
    }
    spec = {
        "resourceSelectors": [selector],
        "placement": {"clusterAffinity": {"clusterNames": ["west"]}},
    }
    policy = named("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy", "owner", spec=spec)
    place = manifests.role_path("owner")

    async def is_placed() -> bool:
        return await theft.member.client.find(place) is not None

    async with theft.fleet.controllers():
        await theft.make(path, policy)
        await until(is_placed)

    assert (await theft.member.client.get(place))["rules"] == EVERYTHING
