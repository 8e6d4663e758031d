"""kube-apiserver's audit policy: which rule a request has, and files that cannot be."""

from typing import Any

import pytest
import yaml

from clusterspace.apiserver.http.audit_policy import Level, read_policy
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.users import User
from clusterspace.errors import UnusableConfiguration

JANE = User("jane", ("devs", "system:authenticated"))

SAMPLE = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
  resources: [{group: "", resources: [endpoints, services]}]
- level: None
  userGroups: ["system:nodes"]
  verbs: [get]
  resources: [{group: "", resources: ["nodes/*"]}]
- level: None
  nonResourceURLs: ["/healthz*", /version]
- level: Request
  resources: [{group: "", resources: [configmaps], resourceNames: [controller-leader]}]
  namespaces: [kube-system]
  omitManagedFields: false
- level: Metadata
  resources: [{group: "", resources: [secrets, "*/token"]}, {group: authentication.k8s.io}]
  omitStages: [ResponseStarted]
- level: RequestResponse
  namespaces: [""]
- level: RequestResponse
"""


def policy(text: str = SAMPLE) -> Any:
    return read_policy(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("user", "method", "path", "level"),
    [
        ("system:kube-proxy", "GET", "/api/v1/services?watch=1", "NONE"),
        ("system:kube-proxy", "GET", "/api/v1/services", "REQUEST_RESPONSE"),
        ("jane", "GET", "/api/v1/services?watch=1", "REQUEST_RESPONSE"),
        ("node", "GET", "/api/v1/nodes/a/status", "NONE"),
        ("node", "PUT", "/api/v1/nodes/a/status", "REQUEST_RESPONSE"),
        ("jane", "GET", "/healthz/ping", "NONE"),
        ("jane", "GET", "/version", "NONE"),
        ("jane", "GET", "/versions", "REQUEST_RESPONSE"),
        ("jane", "PUT", "/api/v1/namespaces/kube-system/configmaps/controller-leader", "REQUEST"),
        ("jane", "PUT", "/api/v1/namespaces/shop/configmaps/x", "REQUEST_RESPONSE"),
        ("jane", "GET", "/api/v1/namespaces/shop/secrets/x", "METADATA"),
        ("jane", "POST", "/api/v1/namespaces/shop/serviceaccounts/x/token", "METADATA"),
        ("jane", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", "METADATA"),
    ],
)
def test_the_first_rule_that_matches_counts(user: str, method: str, path: str, level: str) -> None:
    who = User(user, ("system:nodes",)) if user == "node" else User(user)
    path, _, query = path.partition("?")

    assert policy().decide(who, read_request(method, path, query)).level is Level[level]


def test_stages_add_up_and_the_rule_decides_on_managed_fields() -> None:
    secrets = policy().decide(JANE, read_request("GET", "/api/v1/secrets", ""))
    leader = "/api/v1/namespaces/kube-system/configmaps/controller-leader"

    assert secrets.omit_stages == {"RequestReceived", "ResponseStarted"}
    assert secrets.omit_managed_fields
    assert not policy().decide(JANE, read_request("GET", leader, "")).omit_managed_fields


ALL = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n"
NAMED = ALL + "  resources: [{group: '', resources: [secrets]}]\n"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/shop/secrets/x",
        "/api/v1/namespaces/shop/serviceaccounts/x/token",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "/apis/work.karmada.io/v1alpha1/namespaces/x/works/y",
        "/apis/placement.kubernetes-fleet.io/v1beta1/namespaces/x/works/y/status",
        "/apis/placement.kubernetes-fleet.io/v1beta1/namespaces/x/resourcesnapshots/y",
        "/apis/placement.kubernetes-fleet.io/v1beta1/clusterresourcesnapshots/y",
        "/apis/placement.kubernetes-fleet.io/v1beta1/namespaces/x/resourceenvelopes/y",
        "/apis/placement.kubernetes-fleet.io/v1beta1/clusterresourceenvelopes/y",
    ],
)
def test_bodies_of_credentials_are_written_only_where_a_rule_names_them(path: str) -> None:
    info = read_request("POST", path, "")

    assert policy(ALL).decide(JANE, info).level is Level.METADATA
    star = ALL + "  resources: [{group: '', resources: ['*']}, {group: work.karmada.io}]\n"
    assert policy(star).decide(JANE, info).level <= Level.METADATA
    if "secrets" in path:
        assert policy(NAMED).decide(JANE, info).level is Level.REQUEST_RESPONSE


def test_without_a_matching_rule_there_is_no_event() -> None:
    assert policy(NAMED).decide(JANE, read_request("GET", "/api/v1/pods", "")).level is Level.NONE


def test_who_failed_to_log_in_is_nobody_a_rule_could_name() -> None:
    info = read_request("GET", "/api/v1/pods", "")
    text = ALL + "  userGroups: ['system:unauthenticated']\n"

    assert policy(text).decide(None, info).level is Level.NONE
    assert policy(ALL).decide(None, info).level is Level.REQUEST_RESPONSE


HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[]", "no audit Policy"),
        ("apiVersion: audit.k8s.io/v1beta1\nkind: Policy", "audit.k8s.io/v1beta1"),
        (HEAD, "rules: there must be"),
        (HEAD + "rules: {}", "rules: it must be a list"),
        (HEAD + "rules: [1]", "rules[0]"),
        (HEAD + "rules: [{level: Metadata}, {level: Everything}]", "rules[1].level"),
        (HEAD + "rules: [{users: [jane]}]", "rules[0].level"),
        (HEAD + "rules: [{level: None, users: [1]}]", "rules[0].users[0]"),
        (HEAD + "rules: [{level: None, nonResourceURLs: [api]}]", "rules[0].nonResourceURLs[0]"),
        (HEAD + "rules: [{level: None, nonResourceURLs: ['/a*b']}]", "nonResourceURLs[0]"),
        (HEAD + "rules: [{level: None, nonResourceURLs: ['/a'], namespaces: [x]}]", "nonResource"),
        (HEAD + "rules: [{level: None, resources: [{group: apps/v1}]}]", "resources[0].group"),
        (HEAD + "rules: [{level: None, resources: [{resourceNames: [x]}]}]", "resourceNames"),
        (HEAD + "omitStages: [Later]\nrules: [{level: None}]", "omitStages[0]"),
        (HEAD + "rules: [{level: None, omitStages: [Later]}]", "rules[0].omitStages[0]"),
        (HEAD + "rules: [{level: None, omitManagedFields: 1}]", "rules[0].omitManagedFields"),
    ],
)
def test_a_file_that_cannot_be_is_refused_with_the_place(text: str, place: str) -> None:
    with pytest.raises(UnusableConfiguration) as refused:
        policy(text)
    assert place in str(refused.value)
