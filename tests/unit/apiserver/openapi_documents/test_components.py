from typing import Any

from tests.unit.apiserver.openapi_subjects import WIDGET_SCHEMA, builtin, widgets

from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.openapi_documents.documents import components, is_published
from clusterspace.apiserver.openapi_documents.names import definition_name
from clusterspace.kube.resources import GroupVersionKind

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
WIDGET = "com.example.shop.v1.Widget"


def published(name: str) -> Any:
    return components([name], ())[name]


def described(served: Served) -> Any:
    name = definition_name(served.info.group_version_kind)
    return components([name], [served])[name]


def refers_to(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def test_a_definition_brings_along_all_that_it_refers_to() -> None:
    found = components(["io.k8s.api.core.v1.ConfigMap"], ())

    assert sorted(found) == [
        "io.k8s.api.core.v1.ConfigMap",
        f"{META}.FieldsV1",
        f"{META}.ManagedFieldsEntry",
        f"{META}.ObjectMeta",
        f"{META}.OwnerReference",
        f"{META}.Time",
    ]


def test_a_definition_that_refers_to_itself_is_there_once() -> None:
    name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"

    found = components([name], ())

    assert found[name]["properties"]["not"] == refers_to(name)


def test_client_side_apply_finds_how_to_merge_lists() -> None:
    containers = published("io.k8s.api.core.v1.PodSpec")["properties"]["containers"]

    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["items"] == refers_to("io.k8s.api.core.v1.Container")


def test_what_stands_beside_a_reference_is_not_lost() -> None:
    strategy = published("io.k8s.api.apps.v1.DeploymentSpec")["properties"]["strategy"]

    assert strategy == {
        "allOf": [refers_to("io.k8s.api.apps.v1.DeploymentStrategy")],
        "x-kubernetes-patch-strategy": "retainKeys",
    }


def test_quantities_and_ports_are_described_as_they_are_on_the_wire() -> None:
    quantity = published("io.k8s.apimachinery.pkg.api.resource.Quantity")
    port = published("io.k8s.apimachinery.pkg.util.intstr.IntOrString")

    assert quantity == {"oneOf": [{"type": "string"}, {"type": "number"}]}
    assert port["format"] == "int-or-string"
    assert port["oneOf"] == [{"type": "integer"}, {"type": "string"}]


def test_a_built_in_kind_is_described_by_the_published_facts() -> None:
    deployments = builtin("apps", "v1", "deployments")

    assert is_published(deployments)
    assert described(deployments)["properties"]["spec"] == refers_to(
        "io.k8s.api.apps.v1.DeploymentSpec"
    )


def test_a_custom_kind_says_what_it_is_and_has_the_metadata_of_every_kind() -> None:
    widget = described(widgets())

    assert widget["x-kubernetes-group-version-kind"] == [
        {"group": "shop.example.com", "version": "v1", "kind": "Widget"}
    ]
    assert list(widget["properties"]) == ["apiVersion", "kind", "metadata", "spec"]
    assert widget["properties"]["metadata"]["allOf"] == [refers_to(f"{META}.ObjectMeta")]
    assert widget["properties"]["apiVersion"]["description"].startswith("APIVersion defines")
    assert (widget["description"], widget["required"]) == ("A thing to sell.", ["spec"])


def test_a_custom_schema_is_described_with_its_defaults_limits_and_merge_rules() -> None:
    spec = described(widgets())["properties"]["spec"]["properties"]
    given = WIDGET_SCHEMA["properties"]["spec"]["properties"]

    for name in ("replicas", "parts", "labels"):
        assert spec[name] == given[name]


def test_a_field_that_takes_both_says_so_in_plain_openapi() -> None:
    port = described(widgets())["properties"]["spec"]["properties"]["port"]

    assert port == {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
    }


def test_an_object_within_an_object_has_its_own_kind_and_metadata() -> None:
    template = described(widgets())["properties"]["spec"]["properties"]["template"]

    assert template["required"] == ["kind", "apiVersion"]
    assert template["properties"]["metadata"]["allOf"] == [refers_to(f"{META}.ObjectMeta")]
    assert template["x-kubernetes-preserve-unknown-fields"] is True


def test_a_custom_kind_without_a_schema_still_has_metadata() -> None:
    anything = described(widgets({"x-kubernetes-preserve-unknown-fields": True}))

    assert anything["type"] == "object"
    assert list(anything["properties"]) == ["apiVersion", "kind", "metadata"]


def test_a_list_of_custom_objects_is_described_too() -> None:
    listed = definition_name(GroupVersionKind("shop.example.com", "v1", "WidgetList"))

    found = components([listed], [widgets()])

    assert found[listed]["properties"]["items"] == {"type": "array", "items": refers_to(WIDGET)}
    assert found[listed]["properties"]["metadata"] == {"allOf": [refers_to(f"{META}.ListMeta")]}
    assert WIDGET in found


def test_the_schema_of_a_custom_kind_is_left_as_it_was() -> None:
    schema = {"type": "object", "properties": {"port": {"x-kubernetes-int-or-string": True}}}

    described(widgets(schema))

    assert schema == {
        "type": "object",
        "properties": {"port": {"x-kubernetes-int-or-string": True}},
    }


def test_custom_definitions_are_named_by_their_group_turned_around() -> None:
    assert definition_name(widgets().info.group_version_kind) == WIDGET
