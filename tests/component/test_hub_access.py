"""A hub over a socket: who may, as whom, who may grant what, and what is written down."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.component.hub_access_site import HubSite, hub_site

RBAC = "/apis/rbac.authorization.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
REVIEWS = "/apis/authorization.k8s.io/v1"
SECRET_WORD = "c2VjcmV0LWNhbmFyeQ=="


@pytest.fixture
async def site() -> AsyncIterator[HubSite]:
    async with hub_site() as running:
        yield running


def rbac(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    version = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def rule(verbs: list[str], group: str, *resources: str, **more: Any) -> dict[str, Any]:
    return {"verbs": verbs, "apiGroups": [group], "resources": list(resources), **more}


def reference(name: str, kind: str = "ClusterRole") -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}


async def allow(site: HubSite, user: str, *rules: dict[str, Any], name: str = "granted") -> None:
    """Give a user rules at the cluster scope."""
    role = rbac("ClusterRole", name, rules=list(rules))
    assert (await site.ask("POST", f"{RBAC}/clusterroles", role)).status == 201
    subjects = [{"kind": "User", "name": user}]
    binding = rbac("ClusterRoleBinding", name, roleRef=reference(name), subjects=subjects)
    assert (await site.ask("POST", f"{RBAC}/clusterrolebindings", binding)).status == 201


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def test_a_binding_is_in_force_when_its_write_is_answered(site: HubSite) -> None:
    assert (await site.ask("GET", MAPS, token="viewer-token")).status == 403

    await allow(site, "viewer", rule(["list"], "", "configmaps"))
    assert (await site.ask("GET", MAPS, token="viewer-token")).status == 200

    await site.ask("DELETE", f"{RBAC}/clusterrolebindings/granted")
    assert (await site.ask("GET", MAPS, token="viewer-token")).status == 403


async def test_a_rule_for_one_name_shows_that_object_and_no_other(site: HubSite) -> None:
    for name in ("web", "other"):
        await site.ask("POST", MAPS, config_map(name))
    named = rule(["get", "list"], "", "configmaps", resourceNames=["web"])
    await allow(site, "viewer", named)

    selected = await site.ask(
        "GET", f"{MAPS}?fieldSelector=metadata.name%3Dweb", token="viewer-token"
    )

    assert b'"web"' in selected.body
    assert b'"other"' not in selected.body
    assert (await site.ask("GET", f"{MAPS}/other", token="viewer-token")).status == 403
    both = f"{MAPS}?fieldSelector=metadata.name%21%3Dx"
    assert (await site.ask("GET", both, token="viewer-token")).status == 403


async def test_an_old_style_watch_of_one_name_shows_no_other_object(site: HubSite) -> None:
    await allow(site, "viewer", rule(["watch"], "", "configmaps", resourceNames=["web"]))
    old_style = "/api/v1/watch/namespaces/default/configmaps/web?timeoutSeconds=1"
    selected = f"{MAPS}?watch=1&fieldSelector=metadata.name%3Dweb&timeoutSeconds=1"

    assert (await site.ask("GET", old_style, token="viewer-token")).status == 403
    assert (await site.ask("GET", selected, token="viewer-token")).status == 200


async def test_applying_what_is_not_there_needs_the_right_to_create(site: HubSite) -> None:
    await allow(site, "viewer", rule(["patch"], "", "configmaps"))

    answer = await site.ask(
        "PATCH",
        f"{MAPS}/web?fieldManager=me",
        config_map("web"),
        token="viewer-token",
        content_type="application/apply-patch+yaml",
    )

    assert answer.status == 403
    assert b"cannot create resource" in answer.body


async def test_nobody_grants_what_they_do_not_hold(site: HubSite) -> None:
    roles = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
    await allow(site, "viewer", rule(["create", "update"], "rbac.authorization.k8s.io", *roles))
    held = rule(["create"], "rbac.authorization.k8s.io", "roles")
    everything = rule(["*"], "*", "*")

    async def create(plural: str, wanted: dict[str, Any]) -> int:
        return (await site.ask("POST", f"{RBAC}/{plural}", wanted, token="viewer-token")).status

    assert await create("clusterroles", rbac("ClusterRole", "a", rules=[held])) == 201
    assert await create("clusterroles", rbac("ClusterRole", "b", rules=[everything])) == 403
    bound = rbac("ClusterRoleBinding", "c", roleRef=reference("cluster-admin"))
    assert await create("clusterrolebindings", bound) == 403
    missing = rbac("ClusterRoleBinding", "d", roleRef=reference("nowhere"))
    assert await create("clusterrolebindings", missing) == 404
    grown = rbac("ClusterRole", "a", rules=[held, everything])
    updated = await site.ask("PUT", f"{RBAC}/clusterroles/a", grown, token="viewer-token")
    assert updated.status == 403


async def test_the_verbs_bind_and_escalate_lift_the_check(site: HubSite) -> None:
    group = "rbac.authorization.k8s.io"
    await allow(
        site,
        "viewer",
        rule(["create", "escalate"], group, "clusterroles"),
        rule(["create"], group, "clusterrolebindings"),
        rule(["bind"], group, "clusterroles", resourceNames=["view"]),
    )
    everything = rbac("ClusterRole", "b", rules=[rule(["*"], "*", "*")])
    view = rbac("ClusterRoleBinding", "v", roleRef=reference("view"))
    admin = rbac("ClusterRoleBinding", "a", roleRef=reference("cluster-admin"))

    async def create(plural: str, wanted: dict[str, Any]) -> int:
        return (await site.ask("POST", f"{RBAC}/{plural}", wanted, token="viewer-token")).status

    assert await create("clusterroles", everything) == 201
    assert await create("clusterrolebindings", view) == 201
    assert await create("clusterrolebindings", admin) == 403


async def test_aggregated_roles_hold_what_their_parts_hold(site: HubSite) -> None:
    answer = await site.ask("GET", f"{RBAC}/clusterroles/admin")

    assert b'"poddisruptionbudgets"' in answer.body
    assert b'"localsubjectaccessreviews"' in answer.body


async def test_an_administrator_acts_as_somebody_else_and_may_what_they_may(site: HubSite) -> None:
    headers = ("Impersonate-User: jane", "Impersonate-Group: devs", "Impersonate-Extra-Scope: a")

    answer = await site.ask("GET", MAPS, headers=headers)

    assert answer.status == 403
    user, info = site.witness.authorized[-1]
    assert (user.name, user.groups, info.verb) == ("jane", ("devs", "system:authenticated"), "list")
    checked = [(info.resource, info.name) for _, info in site.witness.authorized[:-1]]
    assert checked == [("users", "jane"), ("groups", "devs"), ("userextras", "a")]


async def test_impersonation_headers_never_reach_a_handler(site: HubSite) -> None:
    await site.ask("GET", "/version", headers=("Impersonate-User: jane", "Impersonate-Uid: 7"))

    (call,) = site.witness.handled
    assert [name for name, _ in call.request.headers if "impersonate" in name] == []
    assert call.user.name == "jane"


async def test_reviews_answer_and_keep_nothing(site: HubSite) -> None:
    attributes = {"verb": "get", "resource": "pods", "namespace": "default"}
    review = {"spec": {"user": "x", "groups": ["g"], "resourceAttributes": attributes}}
    for plural in ("subjectaccessreviews", "namespaces/default/localsubjectaccessreviews"):
        answer = await site.ask("POST", f"{REVIEWS}/{plural}", review)
        assert (answer.status, json.loads(answer.body)["status"]) == (201, {"allowed": False})
    self_review = {"spec": {"resourceAttributes": attributes}}
    answer = await site.ask("POST", f"{REVIEWS}/selfsubjectaccessreviews", self_review)
    assert json.loads(answer.body)["status"] == {"allowed": True}
    empty = await site.ask("POST", f"{REVIEWS}/subjectaccessreviews", {"spec": {}})
    assert empty.status == 422
    assert not [key for key in site.touched if "reviews" in key]


async def test_the_rules_of_an_agent_are_its_own(site: HubSite) -> None:
    review = {"spec": {"namespace": "karmada-es-west"}}

    answer = await site.ask(
        "POST", f"{REVIEWS}/selfsubjectrulesreviews", review, token="agent-west"
    )

    resources = {
        each
        for held in json.loads(answer.body)["status"]["resourceRules"]
        for each in held["resources"]
    }
    assert "works" in resources
    assert "pods" not in resources


async def test_every_write_is_one_line_and_no_read_is(site: HubSite) -> None:
    created = await site.ask(
        "POST",
        MAPS,
        config_map("web"),
        headers=("Impersonate-User: root", "Impersonate-Group: system:masters"),
    )
    (line,) = site.witness.audited
    uid = json.loads(created.body)["metadata"]["uid"]
    assert (line["user"], line["as"], line["verb"], line["code"]) == (
        "admin",
        "root",
        "create",
        201,
    )
    assert (line["name"], line["uid"], line["requestId"]) == ("web", uid, "test")

    await site.ask("GET", f"{MAPS}/web")
    assert site.witness.audited == []

    await site.ask("DELETE", f"{MAPS}/web")
    assert [(each["uid"], each["code"]) for each in site.witness.audited] == [(uid, 200)]

    await site.ask("POST", MAPS, config_map("web"), token="viewer-token")
    assert [(each["user"], each["code"]) for each in site.witness.audited] == [("viewer", 403)]


async def test_no_secret_is_audited(site: HubSite) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"k": SECRET_WORD},
    }
    path = "/api/v1/namespaces/default/secrets"
    heard: list[dict[str, Any]] = []
    for method, where in (
        ("POST", path),
        ("POST", path),
        ("PUT", f"{path}/s"),
        ("DELETE", f"{path}/s"),
    ):
        await site.ask(
            method, f"{where}?pretty={SECRET_WORD}", None if method == "DELETE" else secret
        )
        heard += site.witness.audited

    assert [line["code"] for line in heard] == [201, 409, 200, 200]
    assert SECRET_WORD not in str(heard)
