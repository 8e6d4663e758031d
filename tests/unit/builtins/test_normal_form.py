"""What comes back for what was sent: empty fields, shown structs, rewritten values, refusals."""

import pytest

from clusterspace.builtins import wire_types
from clusterspace.builtins.normal_form import empty_status, is_built_in, normalize
from clusterspace.errors import MalformedObject
from clusterspace.kube.resources import GroupVersionKind


def kind_of(text: str) -> GroupVersionKind:
    api_version, kind = text.split()
    return GroupVersionKind.of(api_version, kind)


def normal(kind: str, **fields):
    return normalize(fields, kind_of(kind)).object


POD = "v1 Pod"
CONFIG_MAP = "v1 ConfigMap"


@pytest.mark.parametrize(
    ("kind", "sent", "answered"),
    [
        # empty values of omitempty fields vanish
        (CONFIG_MAP, {"data": {}, "binaryData": {}}, {"metadata": {}}),
        (CONFIG_MAP, {"metadata": {"name": "", "labels": {}}}, {"metadata": {}}),
        # but a pointer to false, zero or nothing is a value
        (CONFIG_MAP, {"immutable": False}, {"metadata": {}, "immutable": False}),
        (
            "apps/v1 ReplicaSet",
            {"spec": {"replicas": 0, "minReadySeconds": 0}},
            {
                "metadata": {},
                "spec": {
                    "replicas": 0,
                    "selector": None,
                    "template": {"metadata": {}, "spec": {"containers": None}},
                },
                "status": {"replicas": 0},
            },
        ),
        # null is as if it was not there; in a map or list it is the empty value
        (CONFIG_MAP, {"data": None, "immutable": None}, {"metadata": {}}),
        (CONFIG_MAP, {"data": {"a": None}}, {"metadata": {}, "data": {"a": ""}}),
        ("v1 Secret", {"data": {"a": None}}, {"metadata": {}, "data": {"a": ""}}),
        # structs are there even when nobody sent them, lists that must show are null
        (
            "v1 Service",
            {},
            {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}},
        ),
        ("rbac.authorization.k8s.io/v1 Role", {"rules": []}, {"metadata": {}, "rules": None}),
        (
            "v1 Event",
            {},
            {
                "metadata": {},
                "involvedObject": {},
                "source": {},
                "firstTimestamp": None,
                "lastTimestamp": None,
                "eventTime": None,
                "reportingComponent": "",
                "reportingInstance": "",
            },
        ),
        # fields nobody knows are dropped
        (CONFIG_MAP, {"typo": 1, "Data": {"a": "b"}}, {"metadata": {}}),
        # free-form values are kept as they are
        (
            "apps/v1 ControllerRevision",
            {"data": {"a": None, "b": {"c": []}}},
            {"metadata": {}, "revision": 0, "data": {"a": None, "b": {"c": []}}},
        ),
    ],
)
def test_an_object_comes_back_in_its_normal_form(kind, sent, answered) -> None:
    assert normal(kind, **sent) == answered


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("100000", "100k"),
        (5, "5"),
        (1.5, "1500m"),
        (" 1 ", "1"),
        (None, "0"),
    ],
)
def test_quantities_are_rewritten_in_their_canonical_form(sent, answered) -> None:
    quota = normal("v1 ResourceQuota", spec={"hard": {"cpu": sent}})

    assert quota["spec"]["hard"]["cpu"] == answered


@pytest.mark.parametrize(
    ("sent", "answered"),
    [
        ("2024-05-05T10:00:00+02:00", "2024-05-05T08:00:00Z"),
        ("2024-05-05T08:00:00.999Z", "2024-05-05T08:00:00Z"),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_times_are_rewritten_in_utc_to_the_second(sent, answered) -> None:
    assert normal("v1 Event", firstTimestamp=sent)["firstTimestamp"] == answered


def test_micro_times_keep_six_decimals() -> None:
    lease = normal(
        "coordination.k8s.io/v1 Lease", spec={"renewTime": "2024-05-05T10:00:00.120000+02:00"}
    )

    assert lease["spec"]["renewTime"] == "2024-05-05T08:00:00.120000Z"


def test_bytes_may_be_broken_over_lines_and_come_back_on_one() -> None:
    assert normal("v1 Secret", data={"a": "Y\nQ=="})["data"] == {"a": "YQ=="}


def test_schemas_of_custom_resources_keep_their_three_shapes() -> None:
    schema = {
        "type": "object",
        "required": [],
        "properties": {
            "map": {"additionalProperties": False},
            "list": {"items": {"type": "string", "title": ""}, "enum": [1, None]},
            "lists": {"items": [{"type": "string"}], "dependencies": {"a": ["b"]}},
        },
    }
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}

    definition = normal(
        "apiextensions.k8s.io/v1 CustomResourceDefinition", spec={"versions": [version]}
    )

    kept = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert kept == {
        "type": "object",
        "properties": {
            "map": {"additionalProperties": False},
            "list": {"items": {"type": "string"}, "enum": [1, None]},
            "lists": {"items": [{"type": "string"}], "dependencies": {"a": ["b"]}},
        },
    }


def test_unknown_fields_are_named_in_the_order_they_were_written() -> None:
    sent = {
        "metadata": {"nickname": "a"},
        "spec": {"containers": [{"name": "a"}, {"image": "b", "immage": "c"}], "node": {"x": 1}},
        "extra": 1,
    }

    found = normalize(sent, kind_of(POD)).unknown_fields

    assert found == ("metadata.nickname", "spec.containers[1].immage", "spec.node", "extra")


@pytest.mark.parametrize(
    ("kind", "sent", "place", "complaint"),
    [
        (
            CONFIG_MAP,
            {"data": {"a": 1}},
            "data",
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            CONFIG_MAP,
            {"metadata": 1},
            "metadata",
            "json: cannot unmarshal number into Go struct field ConfigMap.metadata "
            "of type v1.ObjectMeta",
        ),
        (
            POD,
            {"spec": {"containers": [{"imagePullPolicy": 3}]}},
            "spec.containers.imagePullPolicy",
            "json: cannot unmarshal number into Go struct field "
            "Container.spec.containers.imagePullPolicy of type v1.PullPolicy",
        ),
        (
            POD,
            {"spec": {"containers": [{"livenessProbe": {"exec": 1}}]}},
            "spec.containers.livenessProbe.ProbeHandler.exec",
            "json: cannot unmarshal number into Go struct field "
            "Probe.spec.containers.livenessProbe.ProbeHandler.exec of type v1.ExecAction",
        ),
        (
            "apps/v1 Deployment",
            {"spec": {"replicas": 5_000_000_000}},
            "spec.replicas",
            "json: cannot unmarshal number 5000000000 into Go struct field "
            "DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1 Deployment",
            {"spec": {"strategy": {"rollingUpdate": {"maxSurge": True}}}},
            "spec.strategy.rollingUpdate.maxSurge",
            "json: cannot unmarshal bool into Go struct field "
            "RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
        ),
        (
            "v1 LimitRange",
            {"spec": {"limits": [{"max": []}]}},
            "spec.limits.max",
            "json: cannot unmarshal array into Go struct field LimitRangeItem.spec.limits.max "
            "of type v1.ResourceList",
        ),
        ("v1 Secret", {"data": {"a": "YQ"}}, "", "illegal base64 data at input byte 0"),
        ("v1 Secret", {"data": {"a": "YWFh!"}}, "", "illegal base64 data at input byte 4"),
        (
            CONFIG_MAP,
            {"metadata": {"creationTimestamp": "zzz"}},
            "",
            'parsing time "zzz" as "2006-01-02T15:04:05Z07:00": cannot parse "zzz" as "2006"',
        ),
        (
            "coordination.k8s.io/v1 Lease",
            {"spec": {"renewTime": "2020-01-01T00:00:00Z"}},
            "",
            'parsing time "2020-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": '
            'cannot parse "Z" as ".000000"',
        ),
        (
            "v1 ResourceQuota",
            {"spec": {"hard": {"cpu": True}}},
            "",
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_with_its_place(kind, sent, place, complaint) -> None:
    known = kind_of(kind)

    with pytest.raises(MalformedObject) as refusal:
        normalize(sent, known)

    opening = f'{known.kind} in version "{known.version}" cannot be handled as a {known.kind}'
    assert refusal.value.message == f"{opening}: {complaint}"
    assert refusal.value.place == place


@pytest.mark.parametrize("kind", wire_types.built_in_kinds(), ids=str)
def test_the_normal_form_of_every_kind_is_its_own_normal_form(kind) -> None:
    blank = normalize({"apiVersion": kind.api_version, "kind": kind.kind}, kind)

    assert normalize(blank.object, kind) == blank


def test_normalizing_leaves_what_was_sent_as_it_was() -> None:
    sent = {"data": {}, "metadata": {"name": "a", "labels": None}}

    normalize(sent, kind_of(CONFIG_MAP))

    assert sent == {"data": {}, "metadata": {"name": "a", "labels": None}}


def test_a_kind_that_is_not_built_in_has_no_normal_form() -> None:
    widget = GroupVersionKind("example.com", "v1", "Widget")

    assert not is_built_in(widget)
    with pytest.raises(LookupError, match="Widget"):
        normalize({}, widget)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("apps/v1 Deployment", {}),
        ("apps/v1 ReplicaSet", {"replicas": 0}),
        ("v1 Service", {"loadBalancer": {}}),
        (CONFIG_MAP, None),
    ],
)
def test_a_status_nobody_reported_has_the_shape_of_its_kind(kind, status) -> None:
    assert empty_status(kind_of(kind)) == status
