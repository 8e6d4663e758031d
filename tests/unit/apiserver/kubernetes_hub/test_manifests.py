"""What `init` puts on a kube-apiserver: whole, named once, and no wider than our own hub."""

from collections import Counter

from clusterspace.apis.identities import CONTROLLERS_USER, FLEET_USER
from clusterspace.apiserver.access.default_roles import COMPONENT_ROLES
from clusterspace.apiserver.access.rbac import missing_atoms, read_rules
from clusterspace.apiserver.kubernetes_hub.manifests import (
    WebhookAddress,
    account_user,
    hub_objects,
    part_user,
    policy_documents,
    webhook_configuration,
)
from clusterspace.apiserver.kubernetes_hub.promises import PROMISES
from clusterspace.kube.objects import name_of, namespace_of

OBJECTS = hub_objects(WebhookAddress("https://10.0.0.5:9443", b"ca"))


def test_every_object_is_there_once_and_known_as_ours() -> None:
    places = Counter((each["kind"], namespace_of(each), name_of(each)) for each in OBJECTS)

    assert set(places.values()) == {1}
    assert all(
        each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "clusterspace-init"
        for each in OBJECTS
    )


def test_no_part_may_do_more_than_on_our_own_hub() -> None:
    ours = {role.name: role.rules for role in COMPONENT_ROLES}
    for part, user in (("controllers", CONTROLLERS_USER), ("fleet", FLEET_USER)):
        named = f"clusterspace-{part}"
        roles = [e for e in OBJECTS if e["kind"] == "ClusterRole" and name_of(e) == named]
        (role,) = roles
        assert list(missing_atoms(read_rules(role["rules"]), ours[user])) == []


def test_what_writes_secrets_and_leases_is_said_for_single_namespaces() -> None:
    everywhere = [each for each in OBJECTS if each["kind"] == "ClusterRole"]
    for role in everywhere:
        for rule in read_rules(role["rules"]):
            if {"secrets", "leases", "configmaps"} & set(rule.resources):
                assert not {"create", "delete", "update"} & set(rule.verbs), name_of(role)


def test_the_webhook_is_found_by_url_or_by_its_service() -> None:
    by_service = webhook_configuration(WebhookAddress())["webhooks"][0]["clientConfig"]

    assert by_service["service"]["name"] == "clusterspace-webhook"
    assert WebhookAddress("https://hooks.example.com:9443").server_names == ("hooks.example.com",)
    assert "clusterspace-webhook.clusterspace-system.svc" in WebhookAddress().server_names


def test_what_protects_fails_closed_and_in_time() -> None:
    for entry in webhook_configuration(WebhookAddress())["webhooks"]:
        assert entry["failurePolicy"] == "Fail"
        assert entry["timeoutSeconds"] <= 10


def test_every_promise_names_what_there_is_and_nothing_is_left_unnamed() -> None:
    entries = webhook_configuration(WebhookAddress())["webhooks"]
    hooks = {each["name"].removesuffix(".clusterspace.io") for each in entries}
    policies = {each["name"] for each in policy_documents()}

    assert {name for each in PROMISES for name in each.webhooks} == hooks
    assert {name for each in PROMISES for name in each.policies} == policies


def test_the_account_of_a_part_is_that_part_to_our_rules() -> None:
    assert part_user(account_user("controllers")) == CONTROLLERS_USER
    assert part_user("jane") == "jane"
