"""Answers carry the names the client used, and every name in them can be asked for."""

import json
from typing import Any

import pytest

from clusterspace.errors import ClusterMisbehaved
from clusterspace.fleet.gateway import renaming
from clusterspace.fleet.gateway.routes import Naming, Subject

POD = Subject("", "v1", "pods")
DEPLOYMENT = Subject("apps", "v1", "deployments")
NAMES = Naming("m1", qualifies_names=True)
NAMESPACES = Naming("m1", qualifies_namespaces=True)
SOURCE = "resource.karmada.io/cached-from-cluster"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def rewritten(answer: Any, naming: Naming, subject: Subject = POD) -> Any:
    return json.loads(renaming.rewrite_answer(json.dumps(answer).encode(), naming, subject))


def pod(**metadata: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "web", "namespace": "default", **metadata}}


def test_a_name_carries_its_cluster_and_its_namespace_does_not() -> None:
    answered = rewritten(pod(), NAMES)

    assert answered["metadata"] == {"name": "web.clusterspace.m1", "namespace": "default"}


def test_a_qualified_namespace_is_echoed_and_names_stay_plain() -> None:
    answered = rewritten(pod(), NAMESPACES)

    assert answered["metadata"] == {"name": "web", "namespace": "default.clusterspace.m1"}


def test_the_owner_and_the_node_of_a_pod_can_be_asked_for() -> None:
    owned = {**pod(ownerReferences=[{"name": "rs", "uid": "u"}]), "spec": {"nodeName": "n1"}}

    answered = rewritten(owned, NAMES)

    assert answered["metadata"]["ownerReferences"] == [{"name": "rs.clusterspace.m1", "uid": "u"}]
    assert answered["spec"] == {"nodeName": "n1.clusterspace.m1"}


def test_other_kinds_keep_what_is_in_their_spec() -> None:
    template = {"kind": "Deployment", "metadata": {"name": "a"}, "spec": {"nodeName": "n1"}}

    assert rewritten(template, NAMES, DEPLOYMENT)["spec"] == {"nodeName": "n1"}


@pytest.mark.parametrize("field", ["involvedObject", "regarding", "related"])
def test_an_event_names_what_it_is_about(field: str) -> None:
    event = {"kind": "Event", "metadata": {"name": "web.17ab"}, field: {"name": "web"}}
    group = "" if field == "involvedObject" else "events.k8s.io"

    answered = rewritten(event, NAMES, Subject(group, "v1", "events"))

    assert answered["metadata"]["name"] == "web.17ab.clusterspace.m1"
    assert answered[field]["name"] == "web.clusterspace.m1"


def test_plain_names_leave_every_byte_as_it_was() -> None:
    body = b'{ "kind": "Pod", "metadata": {"name": "web"} }'

    assert renaming.rewrite_answer(body, Naming("m1"), POD) is body


@pytest.mark.parametrize("subresource", ["log", "proxy", "exec"])
def test_bytes_that_are_not_objects_are_not_read(subresource: str) -> None:
    subject = Subject("", "v1", "pods", subresource)

    assert renaming.rewrite_answer(b"any text", NAMES, subject) == b"any text"


def test_a_scale_has_the_name_it_was_asked_by() -> None:
    scale = {"kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 1}}

    answered = rewritten(scale, NAMES, Subject("apps", "v1", "deployments", "scale"))

    assert answered["metadata"]["name"] == "a.clusterspace.m1"


@pytest.mark.parametrize("kind", ["PodList", "PartialObjectMetadataList"])
def test_every_item_of_a_list_is_renamed(kind: str) -> None:
    listed = {"kind": kind, "metadata": {"resourceVersion": "7"}, "items": [pod(), pod()]}

    answered = rewritten(listed, NAMESPACES)

    assert [item["metadata"]["namespace"] for item in answered["items"]] == [
        "default.clusterspace.m1"
    ] * 2
    assert answered["metadata"] == {"resourceVersion": "7"}


def test_a_table_shows_the_name_in_the_cell_and_beside_it() -> None:
    row = {"cells": ["5m", "web"], "object": {"kind": "PartialObjectMetadata", **pod()}}
    columns = [{"name": "Age", "format": ""}, {"name": "Name", "format": "name"}]
    table = {"kind": "Table", "columnDefinitions": columns, "rows": [row]}

    answered = rewritten(table, NAMES)

    assert answered["rows"][0]["cells"] == ["5m", "web.clusterspace.m1"]
    assert answered["rows"][0]["object"]["metadata"]["name"] == "web.clusterspace.m1"
    assert answered["columnDefinitions"] == columns


@pytest.mark.parametrize(
    ("subject", "cells", "expected"),
    [
        (POD, ["web", "1/1"], ["web.clusterspace.m1", "1/1"]),
        (Subject("example.com", "v1", "gates"), ["a", "b"], ["a.clusterspace.m1", "b"]),
        (Subject("", "v1", "events"), [*"123456789", "e"], [*"123456789", "e.clusterspace.m1"]),
    ],
)
def test_a_table_that_leaves_its_columns_to_an_earlier_one_is_renamed_as_well(
    subject: Subject, cells: list[str], expected: list[str]
) -> None:
    table = {"kind": "Table", "rows": [{"cells": cells, "object": None}]}

    assert rewritten(table, NAMES, subject)["rows"] == [{"cells": expected, "object": None}]


def test_a_refusal_names_the_object_as_the_client_did() -> None:
    status = {
        "kind": "Status",
        "message": 'pods "web" not found',
        "details": {"name": "web", "kind": "pods", "uid": "u"},
    }

    answered = rewritten(status, NAMES)

    assert answered["message"] == 'pods "web.clusterspace.m1" not found'
    assert answered["details"] == {"name": "web.clusterspace.m1", "kind": "pods", "uid": "u"}


@pytest.mark.parametrize("kind", ["users", "groups", "serviceaccounts"])
def test_a_refusal_about_who_asks_leaves_their_name_alone(kind: str) -> None:
    status = {
        "kind": "Status",
        "message": f'{kind} "jane" is forbidden: User "x" cannot impersonate resource "{kind}"',
        "details": {"name": "jane", "kind": kind},
    }

    assert rewritten(status, NAMES) == status


@pytest.mark.parametrize("details", [{}, {"details": None}, {"details": {"kind": "pods"}}])
def test_a_refusal_about_nothing_in_particular_stays(details: dict[str, Any]) -> None:
    status = {"kind": "Status", "message": 'User "web" may not', **details}

    assert rewritten(status, NAMES) == status


def test_a_missing_namespace_is_named_as_the_client_did() -> None:
    status = {
        "kind": "Status",
        "message": 'namespaces "default" not found',
        "details": {"name": "default", "kind": "namespaces"},
    }

    assert rewritten(status, NAMESPACES)["details"]["name"] == "default.clusterspace.m1"


def test_a_namespace_asked_for_by_its_qualified_name_is_called_that() -> None:
    namespace = {"kind": "Namespace", "metadata": {"name": "default"}}

    answered = rewritten(namespace, NAMESPACES, Subject("", "v1", "namespaces"))

    assert answered["metadata"]["name"] == "default.clusterspace.m1"


def test_data_and_other_annotations_are_nobodys_business() -> None:
    config = {
        "kind": "ConfigMap",
        "metadata": {"name": "a", "annotations": {"example.com/name": "a"}},
        "data": {"name": "a", "metadata": '{"name":"a"}'},
    }

    answered = rewritten(config, NAMES, Subject("", "v1", "configmaps"))

    assert answered["data"] == config["data"]
    assert answered["metadata"]["annotations"] == {"example.com/name": "a"}


def test_an_annotation_of_kubectls_that_holds_no_object_stays() -> None:
    answered = rewritten(pod(annotations={APPLIED: "not json"}), NAMES)

    assert answered["metadata"]["annotations"] == {APPLIED: "not json"}


def test_an_answer_that_is_no_json_is_the_clusters_fault() -> None:
    with pytest.raises(ClusterMisbehaved, match="m1"):
        renaming.rewrite_answer(b"<html>", NAMES, POD)


@pytest.mark.parametrize(
    ("annotations", "shown"),
    [
        ({}, {"annotations": {SOURCE: "m1"}}),
        ({"annotations": None}, {"annotations": {SOURCE: "m1"}}),
        ({"annotations": {"a": "b"}}, {"annotations": {"a": "b", SOURCE: "m1"}}),
        ({"annotations": {SOURCE: "a lie"}}, {"annotations": {SOURCE: "m1"}}),
        ({"annotations": 7}, {"annotations": 7}),
    ],
)
def test_objects_of_search_say_their_cluster_and_keep_their_names(
    annotations: dict[str, Any], shown: dict[str, Any]
) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "web", **annotations}, "spec": {"nodeName": "n"}}
    body = json.dumps(pod).encode()

    answer = renaming.rewrite_answer(body, Naming("m1", shows_source=True), POD)

    assert json.loads(answer) == {**pod, "metadata": {"name": "web", **shown}}
