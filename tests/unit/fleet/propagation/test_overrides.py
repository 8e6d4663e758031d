import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apis.affinities import Traits
from clusterspace.errors import InapplicablePatch, OverrideFailed
from clusterspace.fleet.propagation.overrides import (
    Image,
    OverridePolicies,
    applied_text,
    apply_overriders,
    overridden_image,
    override,
    override_document,
    read_image,
    read_json,
    read_yaml,
    rules_for,
    write_json,
    write_yaml,
)
from clusterspace.kube.objects import Object, annotations_of, find_at, labels_of, with_value
from clusterspace.testing.builders import config_map, deployment, pod

NORTH = Traits("north", {"tier": "gold"}, provider="p", region="r", zones=frozenset({"z1"}))
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}


def add_label(value: str, key: str = "who") -> Object:
    return {"labelsOverrider": [{"operator": "add", "value": {key: value}}]}


def policy(name: str, *rules: Object, selectors: list[Object] | None = None) -> Object:
    spec: Object = {"overrideRules": list(rules)}
    if selectors is not None:
        spec["resourceSelectors"] = selectors
    return {"metadata": {"name": name}, "spec": spec}


def rule(overriders: Object, **target: Any) -> Object:
    return {"overriders": overriders, **({"targetCluster": target} if target else {})}


def names_of(*policies: Object, cluster: Traits = NORTH) -> list[str]:
    return [each.policy for each in rules_for(deployment("web"), cluster, policies)]


def test_the_more_precisely_a_policy_means_the_object_the_later_it_comes() -> None:
    by_name = policy("a", rule(add_label("1")), selectors=[{**DEPLOYMENT, "name": "web"}])
    labels = {"matchLabels": {"app": "web"}}
    by_labels = policy(
        "b", rule(add_label("2")), selectors=[{**DEPLOYMENT, "labelSelector": labels}]
    )
    by_kind = policy("d", rule(add_label("3")), selectors=[DEPLOYMENT])
    everything = policy("c", rule(add_label("4")))

    assert names_of(by_name, by_labels, by_kind, everything) == ["c", "d", "b", "a"]


def test_equally_precise_policies_go_by_name_and_rules_as_written() -> None:
    second = policy("b", rule(add_label("1")))
    first = policy("a", rule(add_label("2")), rule(add_label("3")))

    assert names_of(second, first) == ["a", "a", "b"]


def test_policies_for_other_objects_do_not_apply() -> None:
    others = [
        policy("kind", rule(add_label("1")), selectors=[{"apiVersion": "v1", "kind": "Pod"}]),
        policy("name", rule(add_label("1")), selectors=[{**DEPLOYMENT, "name": "other"}]),
        policy("place", rule(add_label("1")), selectors=[{**DEPLOYMENT, "namespace": "shop"}]),
    ]

    assert names_of(*others) == []


@pytest.mark.parametrize(
    ("target", "is_meant"),
    [
        ({}, True),
        ({"clusterNames": ["north"]}, True),
        ({"clusterNames": ["south"]}, False),
        ({"exclude": ["north"]}, False),
        ({"labelSelector": {"matchLabels": {"tier": "gold"}}}, True),
        ({"labelSelector": {"matchLabels": {"tier": "iron"}}}, False),
        ({"clusterNames": ["north"], "exclude": ["north"]}, False),
        (
            {
                "fieldSelector": {
                    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]
                }
            },
            True,
        ),
        (
            {
                "fieldSelector": {
                    "matchExpressions": [{"key": "region", "operator": "NotIn", "values": ["r"]}]
                }
            },
            False,
        ),
    ],
)
def test_a_rule_applies_to_the_clusters_it_names(target: Object, is_meant: bool) -> None:
    named = policy("a", {"overriders": add_label("1"), "targetCluster": target})

    assert names_of(named) == (["a"] if is_meant else [])


def test_the_fields_of_older_policies_are_one_rule() -> None:
    old = {
        "metadata": {"name": "old"},
        "spec": {"targetCluster": {"clusterNames": ["north"]}, "overriders": add_label("1")},
    }

    assert names_of(old) == ["old"]
    assert names_of(old, cluster=Traits("south", {})) == []


def test_policies_of_the_namespace_have_the_last_word() -> None:
    policies = OverridePolicies(
        cluster_wide=[
            policy("z", rule(add_label("wide")), selectors=[{**DEPLOYMENT, "name": "web"}])
        ],
        namespaced=[policy("a", rule(add_label("own")))],
    )

    overridden = override(deployment("web"), NORTH, policies)

    assert labels_of(overridden.manifest)["who"] == "own"
    assert [each.policy for each in overridden.cluster_wide] == ["z"]
    assert [each.policy for each in overridden.namespaced] == ["a"]


def test_without_policies_the_manifest_is_the_template() -> None:
    template = deployment("web")

    overridden = override(template, NORTH, OverridePolicies())

    assert overridden.manifest is template
    assert applied_text(overridden.namespaced) == ""


def test_a_policy_that_fails_is_named() -> None:
    failing = {"plaintext": [{"path": "/absent/x", "operator": "replace", "value": 1}]}
    policies = OverridePolicies(namespaced=[policy("bad", rule(failing))])

    with pytest.raises(OverrideFailed, match=r"override policy bad: plaintext\[0\]: "):
        override(deployment("web"), NORTH, policies)


@pytest.mark.parametrize(
    "broken",
    [
        policy("bad", rule({}, labelSelector={"matchLabels": {"a b": "c"}})),
        policy(
            "bad",
            rule({}),
            selectors=[{**DEPLOYMENT, "labelSelector": {"matchLabels": {"a b": "c"}}}],
        ),
    ],
)
def test_a_policy_that_cannot_be_read_is_named(broken: Object) -> None:
    with pytest.raises(OverrideFailed, match="override policy bad: "):
        override(deployment("web"), NORTH, OverridePolicies(namespaced=[broken]))


def test_what_was_applied_is_noted_in_karmadas_order_of_fields() -> None:
    overriders = {
        "imageOverrider": [{"value": "v", "operator": "add", "component": "Registry"}],
        "plaintext": [{"value": {"b": 1, "a": 2}, "operator": "add", "path": "/x"}],
    }
    rules = rules_for(deployment("web"), NORTH, [policy("ovr", rule(overriders))])

    assert applied_text(rules) == (
        '[{"policyName":"ovr","overriders":{'
        '"plaintext":[{"path":"/x","operator":"add","value":{"b":1,"a":2}}],'
        '"imageOverrider":[{"component":"Registry","operator":"add","value":"v"}]}}]'
    )


def test_every_applied_rule_is_noted() -> None:
    rules = rules_for(
        deployment("web"), NORTH, [policy("ovr", rule(add_label("1")), rule(add_label("2")))]
    )

    assert [each["policyName"] for each in json.loads(applied_text(rules))] == ["ovr", "ovr"]


def test_overriding_leaves_the_template_as_it_was() -> None:
    template = deployment("web")
    annotate = {"plaintext": [{"path": "/metadata/annotations", "operator": "add", "value": {}}]}

    override(template, NORTH, OverridePolicies(namespaced=[policy("a", rule(annotate))]))

    assert template == deployment("web")
    assert annotations_of(template) == {}


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


DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("nginx", Image("", "nginx")),
        ("nginx:1.27", Image("", "nginx", "1.27")),
        ("team/web:1", Image("", "team/web", "1")),
        ("registry.example/web", Image("registry.example", "web")),
        ("localhost/web", Image("localhost", "web")),
        ("registry:5000/team/web:1", Image("registry:5000", "team/web", "1")),
        (f"web@{DIGEST}", Image("", "web", digest=DIGEST)),
        (f"registry.example/web:1@{DIGEST}", Image("registry.example", "web", "1", DIGEST)),
    ],
)
def test_an_image_reference_is_read_and_written_back(text: str, image: Image) -> None:
    assert read_image(text) == image
    assert str(image) == text


@pytest.mark.parametrize(
    ("image", "component", "operator", "value", "wanted"),
    [
        ("nginx:1", "Registry", "add", "mirror.example", "mirror.example/nginx:1"),
        ("a.example/nginx:1", "Registry", "add", ".cn", "a.example.cn/nginx:1"),
        ("a.example/nginx:1", "Registry", "replace", "b.example", "b.example/nginx:1"),
        ("a.example/nginx:1", "Registry", "remove", "", "nginx:1"),
        ("nginx:1", "Repository", "add", "/alpine", "nginx/alpine:1"),
        ("a.example/nginx:1", "Repository", "replace", "team/web", "a.example/team/web:1"),
        ("nginx", "Tag", "add", "1.27", "nginx:1.27"),
        ("nginx:1", "Tag", "add", "-alpine", "nginx:1-alpine"),
        ("nginx:1", "Tag", "replace", "2", "nginx:2"),
        ("nginx:1", "Tag", "replace", DIGEST, f"nginx@{DIGEST}"),
        (f"nginx@{DIGEST}", "Tag", "replace", "2", "nginx:2"),
        (f"nginx:1@{DIGEST}", "Tag", "replace", "2", "nginx:2"),
        ("nginx:1", "Tag", "remove", "", "nginx"),
        (f"nginx@{DIGEST}", "Tag", "remove", "", "nginx"),
    ],
)
def test_every_component_can_be_added_to_replaced_and_removed(
    image: str, component: str, operator: str, value: str, wanted: str
) -> None:
    assert overridden_image(image, component, operator, value) == wanted


@pytest.mark.parametrize(
    ("image", "component", "operator", "value"),
    [
        ("nginx", "Repository", "remove", ""),
        ("nginx", "Tag", "add", "no tag at all"),
        ("", "Tag", "replace", "1"),
        (":1", "Tag", "replace", "1"),
    ],
)
def test_what_would_be_no_image_is_refused(
    image: str, component: str, operator: str, value: str
) -> None:
    with pytest.raises(OverrideFailed):
        overridden_image(image, component, operator, value)


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,9}(\.example)(:[0-9]{2,4})?", fullmatch=True),
    st.from_regex(r"[a-z]{1,5}(/[a-z]{1,5}){0,2}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}", fullmatch=True),
)
def test_replacing_the_registry_touches_nothing_else(host: str, path: str, tag: str) -> None:
    changed = overridden_image(f"{host}/{path}:{tag}", "Registry", "replace", "b.example")

    assert changed == f"b.example/{path}:{tag}"


JSON = '{"db": {"host": "a", "ports": [1, 2]}, "z": 1}'
YAML = "db:\n  host: a\n  ports:\n  - 1\n  - 2\nz: 1\n"


def overridden(text: str, form: str, *operations: Object) -> str:
    manifest = config_map("web", {"config": text, "other": "stays"})
    overrider = {"fieldPath": "/data/config", form: list(operations)}
    changed = override_document(manifest, overrider)
    assert changed["data"]["other"] == "stays"
    return changed["data"]["config"]


def operation(path: str, operator: str, value: Any = None) -> Object:
    return {"subPath": path, "operator": operator, "value": value}


def test_a_json_file_is_changed_inside() -> None:
    changed = overridden(
        JSON,
        "json",
        operation("/db/host", "replace", "b"),
        operation("/db/ports/0", "remove"),
        operation("/a", "add", {"y": 1, "x": None}),
    )

    assert changed == '{"a":{"x":null,"y":1},"db":{"host":"b","ports":[2]},"z":1}'


def test_a_yaml_file_is_changed_inside_and_stays_readable() -> None:
    changed = overridden(
        YAML, "yaml", operation("/db/host", "replace", "b"), operation("/motd", "add", "hi\nyou\n")
    )

    assert changed == "db:\n  host: b\n  ports:\n  - 1\n  - 2\nmotd: |\n  hi\n  you\nz: 1\n"


def test_a_document_may_be_a_list_or_be_replaced_whole() -> None:
    assert overridden("[1, 2]", "json", operation("/0", "remove")) == "[2]"
    assert overridden("[1, 2]", "json", operation("", "replace", {"a": 1})) == '{"a":1}'


def test_texts_that_look_like_numbers_stay_texts() -> None:
    changed = overridden('port: "80"\n', "yaml", operation("/name", "add", "yes"))

    assert read_yaml(changed, "/data/config") == {"port": "80", "name": "yes"}


@pytest.mark.parametrize(("text", "form"), [("{", "json"), ("a: [", "yaml"), ("a: *b", "yaml")])
def test_a_file_that_cannot_be_read_is_named(text: str, form: str) -> None:
    with pytest.raises(OverrideFailed, match="/data/config is not"):
        overridden(text, form, operation("/a", "add", 1))


def test_an_absent_place_inside_is_refused() -> None:
    with pytest.raises(InapplicablePatch):
        overridden(JSON, "json", operation("/absent/deep", "replace", 1))


def test_an_overrider_without_operations_changes_nothing() -> None:
    manifest = config_map("web", {"config": JSON})

    assert override_document(manifest, {"fieldPath": "/data/config"}) is manifest


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc/~:#- ", min_size=1, max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_what_is_written_is_read_back(document: Any) -> None:
    assert read_json(write_json(document), "/x") == document
    assert read_yaml(write_yaml(document), "/x") == document
