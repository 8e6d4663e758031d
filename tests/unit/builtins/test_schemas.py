"""The packed facts say of built-in kinds what Kubernetes says of them."""

import json
from typing import Any

import pytest
from tests.corpus import corpus_dir

from clusterspace.builtins import schemas as builtin_schemas
from clusterspace.kube.schemas.model import OBJECT_META, Schema
from clusterspace.kube.schemas.pruning import apply_defaults, prune
from clusterspace.kube.schemas.validation import validate

STABLE_KINDS = [
    ("", "v1", "Pod"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Event"),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "v1", "APIService"),
    ("apps", "v1", "StatefulSet"),
    ("authentication.k8s.io", "v1", "TokenReview"),
    ("authorization.k8s.io", "v1", "SubjectAccessReview"),
    ("autoscaling", "v1", "Scale"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ("batch", "v1", "CronJob"),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest"),
    ("coordination.k8s.io", "v1", "Lease"),
    ("discovery.k8s.io", "v1", "EndpointSlice"),
    ("events.k8s.io", "v1", "Event"),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"),
    ("networking.k8s.io", "v1", "Ingress"),
    ("node.k8s.io", "v1", "RuntimeClass"),
    ("policy", "v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("resource.k8s.io", "v1", "ResourceClaim"),
    ("scheduling.k8s.io", "v1", "PriorityClass"),
    ("storage.k8s.io", "v1", "StorageClass"),
]


def walked(schema: Schema | None, *steps: str) -> Schema:
    for step in steps:
        assert schema is not None, f"nothing known at {step}"
        schema = schema.items if step == "[]" else schema.field(step)
    assert schema is not None, f"nothing known at {steps}"
    return schema


def pod_spec(*steps: str) -> Schema:
    return walked(builtin_schemas.schema_for("", "v1", "Pod"), "spec", *steps)


@pytest.mark.parametrize(("group", "version", "kind"), STABLE_KINDS)
def test_every_stable_group_has_its_kinds_with_typed_metadata(group, version, kind) -> None:
    schema = builtin_schemas.schema_for(group, version, kind)

    assert walked(schema, "metadata", "name").type == "string"


def test_a_kind_nobody_publishes_has_no_schema() -> None:
    assert builtin_schemas.schema_for("extensions", "v1beta1", "Deployment") is None
    assert builtin_schemas.schema_for("example.com", "v1", "Widget") is None


def test_a_definition_nobody_publishes_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match=r"io\.k8s\.Nothing"):
        builtin_schemas.definition("io.k8s.Nothing")


def test_container_ports_are_keyed_by_port_and_protocol_which_defaults_to_tcp() -> None:
    ports = pod_spec("containers", "[]", "ports")

    assert ports.list_type == "map"
    assert ports.list_map_keys == ("containerPort", "protocol")
    assert ports.patch_merge_key == "containerPort"
    assert walked(ports, "[]", "protocol").default == "TCP"


def test_service_ports_default_to_tcp() -> None:
    service = builtin_schemas.schema_for("", "v1", "Service")

    assert walked(service, "spec", "ports", "[]", "protocol").default == "TCP"


def test_image_pull_secrets_without_a_name_have_the_empty_name() -> None:
    name = pod_spec("imagePullSecrets", "[]", "name")

    assert name.has_default
    assert name.default == ""


def test_every_key_field_of_a_map_list_is_a_known_scalar() -> None:
    seen = 0
    for name in builtin_schemas.definition_names():
        for field, held in builtin_schemas.definition(name).properties.items():
            for key in held.list_map_keys if held.list_type == "map" else ():
                seen += 1
                assert walked(held, "[]", key).type in {"string", "integer"}, f"{name}.{field}"
    assert seen > 50


def test_volumes_merge_by_name_and_replace_their_other_source() -> None:
    volumes = pod_spec("volumes")

    assert volumes.patch_merge_key == "name"
    assert volumes.patch_strategies == {"merge", "retainKeys"}


def test_a_deployment_strategy_keeps_the_extension_beside_its_reference() -> None:
    deployment = builtin_schemas.schema_for("apps", "v1", "Deployment")
    strategy = walked(deployment, "spec", "strategy")

    assert strategy.patch_strategies == {"retainKeys"}
    assert walked(strategy, "rollingUpdate", "maxSurge").is_int_or_string


def test_label_selectors_and_secret_references_are_atomic() -> None:
    deployment = builtin_schemas.schema_for("apps", "v1", "Deployment")

    assert walked(deployment, "spec", "selector").map_is_atomic
    assert pod_spec("imagePullSecrets", "[]").map_is_atomic


def test_quantities_are_numbers_or_strings_and_times_are_date_times() -> None:
    requests = pod_spec("containers", "[]", "resources", "requests")
    meta = builtin_schemas.definition(builtin_schemas.OBJECT_META)

    assert walked(requests, "cpu").is_int_or_string
    assert walked(meta, "creationTimestamp").raw == {"type": "string", "format": "date-time"}


def test_raw_extensions_keep_whatever_they_hold() -> None:
    revision = builtin_schemas.schema_for("apps", "v1", "ControllerRevision")

    assert walked(revision, "data").preserves_unknown_fields


def test_recursive_definitions_can_be_descended_without_end() -> None:
    crd = builtin_schemas.schema_for("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    schema = walked(crd, "spec", "versions", "[]", "schema", "openAPIV3Schema")

    for _ in range(10):
        schema = walked(schema, "properties", "deeper")

    assert walked(schema, "type").type == "string"


def test_no_prose_and_no_null_types_are_packed() -> None:
    def check(raw) -> int:
        assert "description" not in raw
        assert isinstance(raw.get("type", ""), str)
        children = [*raw.get("properties", {}).values()]
        children += [raw[key] for key in ("items", "additionalProperties") if key in raw]
        return 1 + sum(check(child) for child in children)

    names = builtin_schemas.definition_names()

    assert sum(check(builtin_schemas.definition(name).raw) for name in names) > 4000


def resolved(schema: Schema) -> dict[str, Any]:
    """Return a definition without references, for comparison."""
    said = {key: held for key, held in schema.raw.items() if not key.endswith("version-kind")}
    if schema.properties:
        said["properties"] = {name: resolved(held) for name, held in schema.properties.items()}
    if schema.items is not None:
        said["items"] = resolved(schema.items)
    return said


def test_our_own_object_meta_is_the_published_one() -> None:
    published = builtin_schemas.definition(builtin_schemas.OBJECT_META)

    assert resolved(OBJECT_META) == resolved(published)


def recorded_objects() -> list[dict[str, Any]]:
    """Return every object of a built-in kind that a real server answered with."""
    found: list[dict[str, Any]] = []
    for path in sorted((corpus_dir() / "apiserver").glob("*.json")):
        for step in json.loads(path.read_text())["steps"]:
            body = step.get("response", {}).get("body")
            if isinstance(body, dict) and "metadata" in body:
                found += body.get("items", [body])
    return [held for held in found if schema_of(held) is not None]


def schema_of(held: dict[str, Any]) -> Schema | None:
    group, _, version = held.get("apiVersion", "").rpartition("/")
    return builtin_schemas.schema_for(group, version, held.get("kind", ""))


def with_real_times(value: Any) -> Any:
    """Recordings have symbols for what changes from run to run."""
    if isinstance(value, dict):
        return {key: with_real_times(held) for key, held in value.items()}
    if isinstance(value, list):
        return [with_real_times(held) for held in value]
    return "2024-01-01T00:00:00Z" if value == "<time>" else value


def test_whatever_a_real_server_answers_fits_the_packed_facts() -> None:
    recorded = recorded_objects()

    assert len(recorded) > 100
    for held in map(with_real_times, recorded):
        schema = schema_of(held)
        assert schema is not None
        assert prune(held, schema, is_resource_root=True).unknown == ()
        assert validate(apply_defaults(held, schema), schema) == ()
