"""A cluster gets its own names and versions, whatever form the client sends them in."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.kube.protobuf.recordings import KUBECTL, Recording

from clusterspace.errors import BadRequest, Expired, MalformedObject, UnsupportedMediaType
from clusterspace.fleet.gateway import inbound, renaming
from clusterspace.fleet.gateway.routes import BodyNames, Naming, Subject
from clusterspace.kube.objects import name_of, with_metadata
from clusterspace.kube.protobuf.bodies import decode
from clusterspace.kube.protobuf.encoding import encode
from clusterspace.kube.protobuf.wire import (
    WireField,
    WireType,
    read_envelope,
    write_envelope,
    write_field,
)

POD = Subject("", "v1", "pods")
DEPLOYMENT = Subject("apps", "v1", "deployments")
NAMES = Naming("m1", qualifies_names=True)
VECTOR = "aggregated"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
OBJECT_TYPES = [JSON, "", inbound.MERGE_PATCH, inbound.STRATEGIC_PATCH, inbound.APPLY_PATCH]


def version_for(version: str) -> str:
    if version == "broken":
        raise Expired("not issued here")
    return "42" if version == VECTOR else version


def sent(
    body: Any, content_type: str = JSON, subject: Subject = POD, naming: Naming = NAMES
) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads(inbound.rewrite(raw, content_type, naming, subject, version_for=version_for))


@pytest.mark.parametrize("content_type", OBJECT_TYPES)
def test_every_way_to_send_an_object_loses_the_suffix(content_type: str) -> None:
    metadata = {
        "name": "web.clusterspace.m1",
        "namespace": "default.clusterspace.m1",
        "generateName": "web.clusterspace.m1-",
        "resourceVersion": VECTOR,
        "ownerReferences": [{"name": "rs.clusterspace.m1"}],
    }

    assert sent({"kind": "Pod", "metadata": metadata}, content_type)["metadata"] == {
        "name": "web",
        "namespace": "default",
        "generateName": "web.clusterspace.m1-",
        "resourceVersion": "42",
        "ownerReferences": [{"name": "rs"}],
    }


def test_yaml_is_understood_and_becomes_json() -> None:
    body = b"# a comment\nkind: Pod\nmetadata:\n  name: web.clusterspace.m1\n"

    assert sent(body, "application/yaml") == {"kind": "Pod", "metadata": {"name": "web"}}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b'{ "kind":"Pod", "kind":"Pod", "metadata":{"name":"web"} }'),
        ("application/yaml", b"kind: Pod\nkind: Pod\nmetadata:\n  name: web\n"),
        (inbound.JSON_PATCH, b'[ {"op":"add","path":"/metadata/labels","value":{"a":"b"}} ]'),
        (PROTOBUF, encode({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}})),
        (JSON, b""),
    ],
)
def test_a_body_that_needs_nothing_is_passed_on_as_it_came(content_type: str, body: bytes) -> None:
    assert inbound.rewrite(body, content_type, NAMES, POD, version_for=version_for) is body


@pytest.mark.parametrize(
    ("subject", "body", "expected"),
    [
        (POD, {"spec": {"nodeName": "n.clusterspace.m1"}}, {"spec": {"nodeName": "n"}}),
        (
            Subject("", "v1", "pods", "binding"),
            {"target": {"name": "n.clusterspace.m1"}},
            {"target": {"name": "n"}},
        ),
        (
            Subject("", "v1", "pods", "eviction"),
            {"deleteOptions": {"preconditions": {"resourceVersion": VECTOR}}},
            {"deleteOptions": {"preconditions": {"resourceVersion": "42"}}},
        ),
        (
            Subject("", "v1", "pods", "ephemeralcontainers"),
            {"spec": {"nodeName": "n.clusterspace.m1"}},
            {"spec": {"nodeName": "n"}},
        ),
        (
            Subject("autoscaling", "v2", "horizontalpodautoscalers"),
            {"spec": {"scaleTargetRef": {"name": "web.clusterspace.m1"}}},
            {"spec": {"scaleTargetRef": {"name": "web"}}},
        ),
        (
            Subject("rbac.authorization.k8s.io", "v1", "rolebindings"),
            {"roleRef": {"name": "r.clusterspace.m1"}, "subjects": [{"name": "someone"}]},
            {"roleRef": {"name": "r"}, "subjects": [{"name": "someone"}]},
        ),
        (
            Subject("", "v1", "events"),
            {"involvedObject": {"name": "web.clusterspace.m1"}},
            {"involvedObject": {"name": "web"}},
        ),
        (
            Subject("authorization.k8s.io", "v1", "selfsubjectaccessreviews"),
            {"spec": {"resourceAttributes": {"name": "web.clusterspace.m1"}}},
            {"spec": {"resourceAttributes": {"name": "web"}}},
        ),
    ],
)
def test_references_lose_the_suffix(subject: Subject, body: Any, expected: Any) -> None:
    assert sent({"kind": "Some", **body}, subject=subject) == {"kind": "Some", **expected}


def test_the_hub_answers_to_both_its_names() -> None:
    hub = Naming("karmada")

    for word in ("karmada", "hub"):
        assert sent({"metadata": {"name": f"web.clusterspace.{word}"}}, naming=hub) == {
            "metadata": {"name": "web"}
        }


def test_the_last_marker_decides() -> None:
    nested = {"metadata": {"name": "web.clusterspace.inner.clusterspace.m1"}}

    assert sent(nested) == {"metadata": {"name": "web.clusterspace.inner"}}


@pytest.mark.parametrize("naming", [NAMES, Naming("m1")])
def test_a_name_of_another_cluster_is_refused_and_named(naming: Naming) -> None:
    body = {"metadata": {"ownerReferences": [{"name": "rs.clusterspace.m2"}]}}

    with pytest.raises(
        BadRequest, match=r"metadata.ownerReferences.*'rs.clusterspace.m2'.* m2.* m1"
    ):
        sent(body, naming=naming)


def test_a_version_from_elsewhere_is_refused_by_whoever_reads_versions() -> None:
    with pytest.raises(Expired):
        sent({"metadata": {"resourceVersion": "broken"}})


@pytest.mark.parametrize("version", ["", "0"])
def test_versions_that_mean_any_are_not_translated(version: str) -> None:
    body = json.dumps({"metadata": {"resourceVersion": version}}).encode()

    def refuse(version: str) -> str:
        raise AssertionError(version)

    assert inbound.rewrite(body, JSON, NAMES, POD, version_for=refuse) is body


@pytest.mark.parametrize("typed", [{}, {"kind": "DeleteOptions", "apiVersion": "v1"}])
def test_a_precondition_of_a_deletion_is_translated(typed: dict[str, str]) -> None:
    options = {**typed, "preconditions": {"uid": "u", "resourceVersion": VECTOR}}

    assert sent(options)["preconditions"] == {"uid": "u", "resourceVersion": "42"}


def test_a_field_that_only_looks_like_a_precondition_is_left_alone() -> None:
    custom = {"kind": "Gate", "preconditions": {"resourceVersion": VECTOR}}

    assert sent(custom, subject=Subject("example.com", "v1", "gates")) == custom
    assert sent({"preconditions": {"resourceVersion": VECTOR}}, inbound.MERGE_PATCH) == {
        "preconditions": {"resourceVersion": VECTOR}
    }


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("/metadata/name", "web.clusterspace.m1", "web"),
        ("/metadata/resourceVersion", VECTOR, "42"),
        ("/metadata/ownerReferences/0/name", "rs.clusterspace.m1", "rs"),
        ("/metadata/ownerReferences/-", {"name": "rs.clusterspace.m1"}, {"name": "rs"}),
        ("/metadata/ownerReferences", [{"name": "rs.clusterspace.m1"}], [{"name": "rs"}]),
        ("/spec", {"nodeName": "n.clusterspace.m1"}, {"nodeName": "n"}),
        ("", {"metadata": {"name": "web.clusterspace.m1"}}, {"metadata": {"name": "web"}}),
        ("/metadata/labels/name", "web.clusterspace.m1", "web.clusterspace.m1"),
        ("/data/name", "web.clusterspace.m1", "web.clusterspace.m1"),
    ],
)
@pytest.mark.parametrize("operation", ["add", "replace", "test"])
def test_the_values_of_a_json_patch_are_changed_by_where_they_go(
    operation: str, path: str, value: Any, expected: Any
) -> None:
    patch = [{"op": "remove", "path": "/x"}, {"op": operation, "path": path, "value": value}]

    assert sent(patch, inbound.JSON_PATCH)[1]["value"] == expected


def applied(name: str, namespace: str = "default") -> str:
    """What kubectl remembers of an object, exactly as it writes it."""
    remembered = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"annotations": {}, "name": name, "namespace": namespace},
        "spec": {"note": "a<b"},
    }
    return json.dumps(remembered, separators=(",", ":")).replace("<", "\\u003c") + "\n"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda text: (JSON, {"kind": "Deployment", "metadata": {"annotations": {APPLIED: text}}}),
        lambda text: (inbound.STRATEGIC_PATCH, {"metadata": {"annotations": {APPLIED: text}}}),
        lambda text: (
            inbound.JSON_PATCH,
            [{"op": "replace", "path": "/metadata/annotations", "value": {APPLIED: text}}],
        ),
        lambda text: (
            inbound.JSON_PATCH,
            [
                {
                    "op": "add",
                    "path": "/metadata/annotations/" + APPLIED.replace("/", "~1"),
                    "value": text,
                }
            ],
        ),
    ],
)
def test_what_kubectl_remembers_is_kept_under_the_clusters_own_name(
    wrap: Callable[[str], tuple[str, Any]],
) -> None:
    content_type, body = wrap(applied("web.clusterspace.m1"))

    assert sent(body, content_type, DEPLOYMENT) == wrap(applied("web"))[1]


@pytest.mark.parametrize(
    ("naming", "remembered"),
    [
        (NAMES, applied("web.clusterspace.m1")),
        (Naming("m1", qualifies_namespaces=True), applied("web", "default.clusterspace.m1")),
        (Naming("m1"), applied("web")),
    ],
)
def test_what_kubectl_remembers_comes_back_letter_for_letter(
    naming: Naming, remembered: str
) -> None:
    body = {"kind": "Deployment", "metadata": {"annotations": {APPLIED: remembered}}}
    raw = json.dumps(body).encode()

    stored = inbound.rewrite(raw, JSON, naming, DEPLOYMENT, version_for=version_for)
    answered = json.loads(renaming.rewrite_answer(stored, naming, DEPLOYMENT))

    assert json.loads(stored)["metadata"]["annotations"][APPLIED] == applied("web")
    assert answered["metadata"]["annotations"][APPLIED] == remembered


def test_a_manifest_copied_from_another_cluster_may_remember_it() -> None:
    body = {
        "kind": "Deployment",
        "metadata": {"annotations": {APPLIED: applied("web.clusterspace.m2")}},
    }

    assert sent(body, subject=DEPLOYMENT) == body


def test_a_protobuf_body_is_changed_where_its_json_would_be() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web.clusterspace.m1",
            "namespace": "default.clusterspace.m1",
            "resourceVersion": VECTOR,
            "annotations": {APPLIED: applied("web.clusterspace.m1"), "other": "x.clusterspace.m1"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "A", "name": "a.clusterspace.m1", "uid": "u"},
                {"apiVersion": "v1", "kind": "B", "name": "b", "uid": "u"},
            ],
        },
        "spec": {"containers": [{"name": "x.clusterspace.m1"}], "nodeName": "n.clusterspace.m1"},
    }
    body = encode(pod)

    rewritten = inbound.rewrite(body, PROTOBUF, NAMES, POD, version_for=version_for)

    as_json = json.dumps(decode(body)).encode()
    assert decode(rewritten) == sent(as_json)
    assert decode(rewritten)["metadata"]["name"] == "web"
    assert rewritten == encode(decode(rewritten))


NAMED = [each for each in KUBECTL if decode(each.body).get("metadata", {}).get("name")]


@pytest.mark.parametrize("recording", NAMED, ids=lambda recording: recording.title[:60])
def test_what_kubectl_sends_as_protobuf_is_renamed_and_kept_otherwise(recording: Recording) -> None:
    plain = decode(recording.body)
    qualified = with_metadata(plain, name=f"{name_of(plain)}.clusterspace.m1")
    subject = Subject("", "v1", "anything")

    rewritten = inbound.rewrite(
        encode(qualified), PROTOBUF, NAMES, subject, version_for=version_for
    )

    assert rewritten == recording.body


def test_protobuf_fields_we_do_not_know_are_kept() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a.clusterspace.m1"}}
    stranger = write_field(WireField(999, WireType.FIXED32, b"\x01\x02\x03\x04"))
    known = read_envelope(encode(pod))
    body = write_envelope(replace(known, raw=known.raw + stranger))

    rewritten = inbound.rewrite(body, PROTOBUF, NAMES, POD, version_for=version_for)

    assert read_envelope(rewritten).raw.endswith(stranger)
    assert b"clusterspace" not in rewritten


def test_a_protobuf_deletion_has_its_precondition_translated() -> None:
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"resourceVersion": VECTOR},
    }

    rewritten = inbound.rewrite(encode(options), PROTOBUF, NAMES, POD, version_for=version_for)

    assert decode(rewritten)["preconditions"] == {"resourceVersion": "42"}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b'{"metadata":{"name":"a","namespace":"b","generateName":"c"}}'),
        ("application/yaml", b"metadata:\n  name: a\n  namespace: b\n  generateName: c\n"),
        (inbound.APPLY_PATCH, b'{"metadata":{"name":"a","namespace":"b","generateName":"c"}}'),
        (
            PROTOBUF,
            encode(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "a", "namespace": "b", "generateName": "c"},
                }
            ),
        ),
    ],
)
def test_the_names_in_a_body_are_found_in_every_form(content_type: str, body: bytes) -> None:
    assert inbound.names_in(body, content_type, POD) == BodyNames("a", "b", "c")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [(JSON, b""), (JSON, b"{}"), (JSON, b'{"metadata":{"name":5}}'), (inbound.JSON_PATCH, b"[]")],
)
def test_a_body_without_names_has_none(content_type: str, body: bytes) -> None:
    assert inbound.names_in(body, content_type, POD) == BodyNames()


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF])
def test_a_question_about_rights_names_what_it_asks_about(content_type: str) -> None:
    asked = {"verb": "get", "resource": "pods", "name": "a", "namespace": "b"}
    review: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {"name": ""},
        "spec": {"resourceAttributes": asked},
    }
    body = encode(review) if content_type == PROTOBUF else json.dumps(review).encode()
    subject = Subject("authorization.k8s.io", "v1", "selfsubjectaccessreviews")

    assert inbound.names_in(body, content_type, subject) == BodyNames("a", "b")


@pytest.mark.parametrize("content_type", ["application/cbor", "application/apply-patch+cbor"])
def test_a_type_nobody_reads_here_is_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        inbound.rewrite(b"\xa0", content_type, NAMES, POD, version_for=version_for)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (JSON, b"{"),
        ("application/yaml", b"- a"),
        (inbound.JSON_PATCH, b"{}"),
        (inbound.JSON_PATCH, b"[1]"),
        (PROTOBUF, b"k8s\x00\xff"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(MalformedObject):
        inbound.rewrite(body, content_type, NAMES, POD, version_for=version_for)


def test_a_path_that_is_no_path_is_refused() -> None:
    with pytest.raises(BadRequest, match="path"):
        sent([{"op": "add", "path": "metadata/name", "value": "x"}], inbound.JSON_PATCH)


def test_streams_to_a_pod_are_not_read() -> None:
    subject = Subject("", "v1", "pods", "proxy")

    assert (
        inbound.rewrite(b"\x00", "text/plain", NAMES, subject, version_for=version_for) == b"\x00"
    )


SOURCE = "resource.karmada.io/cached-from-cluster"
SEARCHED = Naming("m1", shows_source=True)


@pytest.mark.parametrize("content_type", [*OBJECT_TYPES, PROTOBUF])
def test_what_search_shows_of_the_source_is_not_written_back(content_type: str) -> None:
    annotations = {SOURCE: "m1", "kept": "yes", APPLIED: "{}\n"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "resourceVersion": VECTOR, "annotations": annotations},
    }
    body = encode(pod) if content_type == PROTOBUF else json.dumps(pod).encode()

    raw = inbound.rewrite(body, content_type, SEARCHED, POD, version_for=version_for)

    metadata = (decode(raw) if content_type == PROTOBUF else json.loads(raw))["metadata"]
    assert metadata["annotations"] == {"kept": "yes", APPLIED: "{}\n"}
    assert (metadata["name"], metadata["resourceVersion"]) == ("web", "42")


def test_a_json_patch_of_the_source_is_left_out() -> None:
    label = {"op": "add", "path": "/metadata/labels/a", "value": "b"}
    own = f"/metadata/annotations/{SOURCE.replace('/', '~1')}"
    patch = [
        label,
        {"op": "add", "path": own, "value": "x"},
        {"op": "remove", "path": own},
        {"op": "add", "path": "/metadata/annotations", "value": {SOURCE: "x", "kept": "yes"}},
    ]

    assert sent(patch, inbound.JSON_PATCH, naming=SEARCHED) == [
        label,
        {"op": "add", "path": "/metadata/annotations", "value": {"kept": "yes"}},
    ]


def test_a_source_in_a_body_that_is_not_of_search_is_the_clusters_business() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "web", "annotations": {SOURCE: "m1"}}}

    assert sent(pod, naming=Naming("m1")) == pod
