from typing import Any

import pytest

from clusterspace.errors import OverrideFailed
from clusterspace.fleet.propagation.overrides.overriders import apply_overriders
from clusterspace.kube.objects import Object, find_at, labels_of, with_value
from clusterspace.testing.builders import config_map, deployment, pod

CONTAINERS = ("spec", "template", "spec", "containers")


def workload(api_version: str, kind: str, *containers: Object) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": list(containers)}}},
    }


def main_of(manifest: Object) -> Object:
    return find_at(manifest, *CONTAINERS)[0]


def words(operator: str, *value: str, container: str = "main") -> Object:
    return {"containerName": container, "operator": operator, "value": list(value)}


def plaintext(path: str, operator: str, value: Any = None) -> Object:
    return {"plaintext": [{"path": path, "operator": operator, "value": value}]}


REPLACE_TAG = {"component": "Tag", "operator": "replace", "value": "2"}


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
    ],
)
def test_every_container_of_a_workload_gets_the_image(api_version: str, kind: str) -> None:
    manifest = workload(
        api_version, kind, {"name": "a", "image": "one:1"}, {"name": "b", "image": "two:1"}
    )

    changed = apply_overriders(manifest, {"imageOverrider": [REPLACE_TAG]})

    assert [each["image"] for each in find_at(changed, *CONTAINERS)] == ["one:2", "two:2"]
    assert main_of(manifest)["image"] == "one:1"


def test_a_pod_lists_its_containers_itself() -> None:
    changed = apply_overriders(pod("web", image="web:1"), {"imageOverrider": [REPLACE_TAG]})

    assert changed["spec"]["containers"][0]["image"] == "web:2"


def test_init_containers_and_strangers_need_a_path() -> None:
    manifest = with_value(
        deployment("web"),
        [{"name": "first", "image": "setup:1"}],
        "spec", "template", "spec", "initContainers",
    )  # fmt: skip
    path = "/spec/template/spec/initContainers/0/image"

    by_path = {**REPLACE_TAG, "predicate": {"path": path}}
    changed = apply_overriders(manifest, {"imageOverrider": [by_path]})

    assert find_at(changed, "spec", "template", "spec", "initContainers")[0]["image"] == "setup:2"
    assert main_of(changed)["image"] == "web:1"
    stranger = workload("example.com/v1", "Deployment", {"name": "a", "image": "one:1"})
    assert apply_overriders(stranger, {"imageOverrider": [REPLACE_TAG]}) == stranger


@pytest.mark.parametrize("path", ["/spec/absent", "/spec/replicas", "/spec/template/0", "image"])
def test_an_image_path_must_lead_to_a_text(path: str) -> None:
    overrider = {**REPLACE_TAG, "predicate": {"path": path}}

    with pytest.raises(OverrideFailed, match=r"imageOverrider\[0\]"):
        apply_overriders(deployment("web"), {"imageOverrider": [overrider]})


@pytest.mark.parametrize(
    ("overrider", "field"), [("commandOverrider", "command"), ("argsOverrider", "args")]
)
def test_words_are_added_to_and_taken_from_one_container(overrider: str, field: str) -> None:
    manifest = workload(
        "apps/v1", "Deployment", {"name": "main", field: ["run", "-v"]}, {"name": "other"}
    )

    added = apply_overriders(manifest, {overrider: [words("add", "--fast")]})
    removed = apply_overriders(manifest, {overrider: [words("remove", "-v", "-x")]})
    emptied = apply_overriders(manifest, {overrider: [words("remove", "run", "-v")]})
    begun = apply_overriders(manifest, {overrider: [words("add", "go", container="other")]})

    assert main_of(added)[field] == ["run", "-v", "--fast"]
    assert main_of(removed)[field] == ["run"]
    assert field not in main_of(emptied)
    assert find_at(begun, *CONTAINERS)[1] == {"name": "other", field: ["go"]}


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_labels_and_annotations_are_added_replaced_and_removed(field: str) -> None:
    manifest = with_value(config_map("web"), {"a": "1", "b": "2"}, "metadata", field)

    def after(operator: str, **value: str) -> Object:
        overriders = {f"{field}Overrider": [{"operator": operator, "value": value}]}
        return apply_overriders(manifest, overriders)["metadata"].get(field)

    assert after("add", b="3", c="4") == {"a": "1", "b": "3", "c": "4"}
    assert after("replace", b="3", c="4") == {"a": "1", "b": "3"}
    assert after("remove", b="", c="") == {"a": "1"}
    assert after("remove", a="", b="") is None


def test_plaintext_is_a_json_patch() -> None:
    manifest = deployment("web", replicas=2)

    assert (
        find_at(
            apply_overriders(manifest, plaintext("/spec/replicas", "replace", 5)),
            "spec",
            "replicas",
        )
        == 5
    )
    where = apply_overriders(manifest, plaintext("/metadata/labels/where", "add", "north"))
    assert labels_of(where)["where"] == "north"
    assert (
        "selector" not in apply_overriders(manifest, plaintext("/spec/selector", "remove"))["spec"]
    )


@pytest.mark.parametrize(
    ("overriders", "why"),
    [
        (plaintext("/spec/absent/deep", "add", 1), "there is nothing at /spec/absent"),
        (plaintext("/spec/absent", "remove"), "there is nothing at /spec/absent"),
        (plaintext("no-slash", "add", 1), "must be empty or start with a slash"),
    ],
)
def test_a_patch_that_cannot_be_made_says_where_it_failed(overriders: Object, why: str) -> None:
    with pytest.raises(OverrideFailed, match=why) as raised:
        apply_overriders(deployment("web"), overriders)

    assert str(raised.value).startswith("plaintext[0]: ")


def test_overriders_take_effect_in_karmadas_order_and_not_as_written() -> None:
    manifest = deployment("web")
    overriders = {
        "plaintext": [
            {"path": "/metadata/labels/order", "operator": "replace", "value": "plaintext"},
            {
                "path": "/spec/template/spec/containers/0/image",
                "operator": "replace",
                "value": "last:9",
            },
        ],
        "fieldOverrider": [
            {
                "fieldPath": "/metadata/labels/order",
                "yaml": [{"subPath": "", "operator": "replace", "value": "field"}],
            }
        ],
        "annotationsOverrider": [{"operator": "add", "value": {"order": "annotations"}}],
        "labelsOverrider": [{"operator": "add", "value": {"order": "labels"}}],
        "argsOverrider": [words("add", "x")],
        "commandOverrider": [words("add", "x")],
        "imageOverrider": [REPLACE_TAG],
    }

    changed = apply_overriders(manifest, overriders)

    assert labels_of(changed)["order"] == "plaintext"
    assert main_of(changed)["image"] == "last:9"


def test_several_overriders_of_one_sort_go_in_their_order() -> None:
    overriders = {
        "labelsOverrider": [
            {"operator": "add", "value": {"a": "1"}},
            {"operator": "replace", "value": {"a": "2"}},
        ]
    }

    assert labels_of(apply_overriders(config_map("web"), overriders)) == {"a": "2"}


def test_no_overriders_change_nothing() -> None:
    manifest = deployment("web")

    assert apply_overriders(manifest, {}) is manifest
