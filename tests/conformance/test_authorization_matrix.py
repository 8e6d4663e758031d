"""Every route, every verb, eight identities: nobody may more than an oracle or Kubernetes says."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from http.client import HTTPSConnection
from itertools import product
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest
from tests.component.hub_access_site import HubSite, hub_site
from tests.conformance.real_kubernetes import (
    TOKEN,
    RealKubernetes,
    running_kubernetes,
    wait_until,
)

from clusterspace.apiserver.access.default_roles import BINDINGS, ROLES
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import ANONYMOUS, AUTHENTICATED, User

RBAC = "/apis/rbac.authorization.k8s.io/v1"
VERBS = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
    "impersonate", "bind", "escalate", "approve",
)  # fmt: skip
CONNECTIONS = 4
SAMPLE = 7
"""One case in so many is put to Kubernetes in the quick run; prime to the number of verbs, so that
every verb has its turn for every identity."""

# What lets a member cluster register is ours alone.
SHARED_ROLES = tuple(each for each in ROLES if each.namespace != "kube-public")
SHARED_BINDINGS = tuple(
    each for each in BINDINGS if not each.namespace and each.name != "system:node-bootstrapper"
)

ROLE_OBJECTS: tuple[dict[str, Any], ...] = (
    {"kind": "ClusterRole", "metadata": {"name": "one-map"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "update"],
         "resourceNames": ["web"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["*"]},
    ]},
    {"kind": "ClusterRole", "metadata": {"name": "all-status"}, "rules": [
        {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["get", "patch"]},
        {"apiGroups": ["batch"], "resources": ["*"], "verbs": ["list"]},
        {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]},
    ]},
    {"kind": "Role", "metadata": {"name": "local", "namespace": "default"}, "rules": [
        {"apiGroups": ["", "rbac.authorization.k8s.io"], "resources": ["pods", "pods/log", "roles"],
         "verbs": ["get", "watch", "bind", "escalate"]},
    ]},
)  # fmt: skip
BINDING_OBJECTS: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    # Namespace of the binding, kind and name of the role, subject.
    ("", "ClusterRole", "cluster-admin", {"kind": "User", "name": "root"}),
    ("default", "ClusterRole", "system:aggregate-to-view", {"kind": "User", "name": "viewer"}),
    ("default", "ClusterRole", "system:aggregate-to-edit", {"kind": "Group", "name": "editors"}),
    ("", "ClusterRole", "system:aggregate-to-admin", {"kind": "Group", "name": "owners"}),
    ("default", "ClusterRole", "one-map", {"kind": "User", "name": "mapper"}),
    ("", "ClusterRole", "all-status", {"kind": "User", "name": "mapper"}),
    ("default", "Role", "local",
     {"kind": "ServiceAccount", "name": "bot", "namespace": "default"}),
)  # fmt: skip
IDENTITIES = (
    ANONYMOUS,
    User("nobody", (AUTHENTICATED,)),
    User("root", (AUTHENTICATED,)),
    User("viewer", (AUTHENTICATED,)),
    User("ed", ("editors", AUTHENTICATED)),
    User("owner", ("owners", AUTHENTICATED)),
    User("mapper", (AUTHENTICATED,)),
    User("system:serviceaccount:default:bot", ("system:serviceaccounts", AUTHENTICATED)),
)


class Case(NamedTuple):
    """One tuple of the matrix."""

    user: User
    info: RequestInfo


@pytest.fixture
async def site() -> AsyncIterator[HubSite]:
    async with hub_site() as running:
        for path, kube_object in all_objects():
            answer = await running.ask("POST", path, kube_object)
            assert answer.status == 201, answer.body
        yield running


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubernetes]:
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as running:
        await_defaults(running)
        yield running


def all_objects() -> Iterator[tuple[str, dict[str, Any]]]:
    for role in ROLE_OBJECTS:
        namespace = role["metadata"].get("namespace")
        where = f"namespaces/{namespace}/roles" if namespace else "clusterroles"
        yield f"{RBAC}/{where}", {"apiVersion": "rbac.authorization.k8s.io/v1", **role}
    for number, (namespace, kind, name, subject) in enumerate(BINDING_OBJECTS):
        where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
        yield (
            f"{RBAC}/{where}",
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
                "metadata": {"name": f"matrix-{number}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [subject],
            },
        )


def matrix(site: HubSite) -> list[Case]:
    """Every resource and subresource of discovery, at its scope, and paths besides."""
    infos: list[RequestInfo] = []
    for served in site.state.catalog.all():
        parts = ("", *(part.name for part in served.info.subresources))
        for verb, part in product(VERBS, parts):
            infos.append(_resource(served.info, verb, part))
    for verb, path in product(("get", "post"), ("/api", "/apis/apps", "/metrics", "/logs/x", "/x")):
        infos.append(RequestInfo(method="", path=path, verb=verb))
    return [Case(user, info) for user, info in product(IDENTITIES, infos)]


def _resource(served: Any, verb: str, part: str) -> RequestInfo:
    has_name = verb not in ("list", "watch", "create", "deletecollection")
    return RequestInfo(
        method="",
        path="",
        verb=verb,
        is_resource=True,
        group=served.group,
        version=served.version,
        resource=served.plural,
        subresource=part,
        namespace="default" if served.namespaced else "",
        name="web" if has_name or part else "",
    )


# -- the oracle: RBAC's documentation read aloud, over the objects as users wrote them -------------


@cache
def rules_of_roles() -> dict[tuple[str, str], Any]:
    rules = {(role.namespace, role.name): role.as_object()["rules"] for role in ROLES}
    for role in ROLE_OBJECTS:
        rules[(role["metadata"].get("namespace", ""), role["metadata"]["name"])] = role["rules"]
    return rules


def oracle(case: Case) -> bool:
    roles = rules_of_roles()
    for default in BINDINGS:
        is_here = default.namespace in ("", case.info.namespace)
        is_meant = bool(set(default.groups) & set(case.user.groups))
        if is_here and is_meant and _any(roles[(default.namespace, default.name)], case):
            return True
    for namespace, kind, name, subject in BINDING_OBJECTS:
        is_here = namespace in ("", case.info.namespace)
        rules = roles[(namespace if kind == "Role" else "", name)]
        if is_here and _is_meant(subject, case.user) and _any(rules, case):
            return True
    return False


def _is_meant(subject: dict[str, str], user: User) -> bool:
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    if subject["kind"] == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return subject["name"] == user.name


def _any(rules: Sequence[dict[str, Any]], case: Case) -> bool:
    return any(_matches(rule, case.info) for rule in rules)


def _matches(rule: dict[str, Any], info: RequestInfo) -> bool:
    if not {info.verb, "*"} & set(rule["verbs"]):
        return False
    if not info.is_resource:
        return any(
            url == info.path or (url.endswith("*") and info.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs", ())
        )
    wanted = {"*", f"{info.resource}/{info.subresource}", f"*/{info.subresource}"}
    if not info.subresource:
        wanted = {"*", info.resource}
    names = rule.get("resourceNames", ())
    return (
        bool({info.group, "*"} & set(rule.get("apiGroups", ())))
        and bool(wanted & set(rule.get("resources", ())))
        and (not names or info.name in names)
    )


async def test_nobody_may_more_or_less_than_the_rules_say(site: HubSite) -> None:
    cases = matrix(site)

    wrong = [
        case
        for case in cases
        if site.access.authorizer.decide_now(case.user, case.info).allowed != oracle(case)
    ]

    assert len(cases) >= 5_000
    assert sum(map(oracle, cases)) > 500
    assert wrong == []


@pytest.mark.parametrize("one_in", [SAMPLE, pytest.param(1, marks=pytest.mark.slow)])
async def test_kubernetes_decides_the_same(
    site: HubSite, kubernetes: RealKubernetes, one_in: int
) -> None:
    everything = matrix(site)
    resources = [case for case in everything if case.info.is_resource]
    paths = [case for case in everything if not case.info.is_resource]
    cases = [*resources[::one_in], *paths]
    theirs = await asyncio.to_thread(decisions_of, kubernetes, cases)
    ours = [site.access.authorizer.decide_now(case.user, case.info).allowed for case in cases]

    answers = list(zip(cases, ours, theirs, strict=True))

    asked = {(case.user.name, case.info.verb) for case in cases}
    assert asked == {(case.user.name, case.info.verb) for case in everything}
    assert [case for case, our, their in answers if our and not their] == []
    assert [case for case, our, their in answers if their and not our] == []


def decisions_of(real: RealKubernetes, cases: list[Case]) -> list[bool]:
    for path, kube_object in all_objects():
        try:
            real.get(f"{path}/{kube_object['metadata']['name']}")
        except HTTPError:  # or it was asked about other cases already
            real.create(path, kube_object)
    # Its authorizer follows with a delay; the last binding is the last to be seen.
    last = RequestInfo("", "", "bind", is_resource=True, resource="pods", namespace="default")
    wait_until(lambda: all(ask_kubernetes(real.url, [Case(IDENTITIES[-1], last)])))
    return ask_kubernetes(real.url, cases)


def await_defaults(real: RealKubernetes) -> None:
    """Wait until it has made its own roles, which it does after it has begun to answer."""
    for path in (
        "/api/v1/namespaces/default",
        f"{RBAC}/namespaces/kube-system/roles/extension-apiserver-authentication-reader",
        *(f"{RBAC}/clusterroles/{role.name}" for role in ROLES if not role.namespace),
        *(f"{RBAC}/clusterrolebindings/{binding.name}" for binding in SHARED_BINDINGS),
    ):
        wait_until(lambda path=path: real.get(path))


def ask_kubernetes(url: str, cases: list[Case]) -> list[bool]:
    """Ask by SubjectAccessReview, over a few connections that are kept."""
    size = -(-len(cases) // CONNECTIONS)
    pieces = [cases[start : start + size] for start in range(0, len(cases), size)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return [
            answer for piece in pool.map(lambda p: _ask_piece(url, p), pieces) for answer in piece
        ]


def _ask_piece(url: str, cases: list[Case]) -> list[bool]:
    trust = ssl._create_unverified_context()
    connection = HTTPSConnection(urlsplit(url).netloc, context=trust, timeout=30)
    answers = [_ask_one(connection, case) for case in cases]
    connection.close()
    return answers


def _ask_one(connection: HTTPSConnection, case: Case) -> bool:
    info = case.info
    attributes = {"verb": info.verb, "path": info.path}
    if info.is_resource:
        attributes = {
            "verb": info.verb,
            "group": info.group,
            "version": info.version,
            "resource": info.resource,
            "subresource": info.subresource,
            "namespace": info.namespace,
            "name": info.name,
        }
    field = "resourceAttributes" if info.is_resource else "nonResourceAttributes"
    spec = {"user": case.user.name, "groups": case.user.groups, field: attributes}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    }
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    connection.request("POST", path, json.dumps(review), headers)
    return json.loads(connection.getresponse().read())["status"]["allowed"]


def test_default_roles_are_those_of_kubernetes(kubernetes: RealKubernetes) -> None:
    for role in SHARED_ROLES:
        where = f"namespaces/{role.namespace}/roles" if role.namespace else "clusterroles"
        theirs = kubernetes.get(f"{RBAC}/{where}/{role.name}")
        assert _essence(theirs) == _essence(role.as_object())
    for binding in SHARED_BINDINGS:
        theirs = kubernetes.get(f"{RBAC}/clusterrolebindings/{binding.name}")
        assert _essence(theirs) == _essence(binding.as_object())


def _essence(kube_object: dict[str, Any]) -> dict[str, Any]:
    metadata = kube_object["metadata"]
    fields = ("rules", "aggregationRule", "subjects", "roleRef")
    body = {field: kube_object[field] for field in fields if kube_object.get(field)}
    return {**body, "labels": metadata["labels"], "annotations": metadata["annotations"]}
