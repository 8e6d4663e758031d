"""Overrides of any shape: by every pointer and overrider, none makes another object of a template.

Admission refuses what it can see, rendering what comes of it; both are asked on their own, since
override policies may be older than admission, or be stored by another API server.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.attacks.tenant_fleet import MALLORY, MEMBER, RBAC, TENANT, rule

from clusterspace.apis import stamps
from clusterspace.apis.affinities import Traits
from clusterspace.apis.overrides import override_causes
from clusterspace.errors import OverrideFailed
from clusterspace.fleet.propagation.overrides import OverridePolicies, override
from clusterspace.kube.json_patches import write_pointer
from clusterspace.kube.objects import Object, annotations_of, labels_of, metadata_of
from clusterspace.testing.builders import config_map, deployment

ROOT = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}


def cluster_role_binding(name: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": ROOT,
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": MALLORY}],
    }


def marked(template: Object) -> Object:
    """Return a template as a policy has claimed it, and with a wish of its author's."""
    metadata = {
        **metadata_of(template),
        "uid": "uid-1",
        "labels": {"app": "web", stamps.POLICY_ID: "id-1"},
        "annotations": {stamps.POLICY_NAME: "web", stamps.CONFLICT_RESOLUTION: "abort"},
    }
    return {**template, "metadata": metadata}


TEMPLATES = [
    marked(each)
    for each in (
        config_map("web", {"config": "kind: ConfigMap"}, namespace=TENANT),
        deployment("web", namespace=TENANT),
        cluster_role_binding("web"),
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": {"name": "web", "namespace": TENANT},
            "rules": [rule("", ["pods"], ["get"])],
        },
    )
]
IDENTITY_POINTERS = [
    "",
    "/apiVersion",
    "/kind",
    "/Kind",
    "/APIVERSION",
    "/Metadata",
    "/metadata",
    "/metadata/",
    "/metadata/name",
    "/metadata/Name",
    "/metadata/namespace",
    "/metadata/generateName",
    "/metadata/uid",
    "/metadata/ownerReferences",
    "/metadata/ownerReferences/-",
    "/metadata/finalizers",
    "/metadata/finalizers/0",
    "/metadata/deletionTimestamp",
    "/metadata/managedFields",
    "/metadata/resourceVersion",
    *(
        write_pointer(("metadata", kind, key))
        for kind in ("labels", "annotations")
        for key in (
            stamps.MANAGED,
            stamps.WORK_ID,
            stamps.WORK_NAMESPACE,
            stamps.CONFLICT_RESOLUTION,
            stamps.BINDING_ID,
            stamps.CLUSTER_POLICY_ID,
            stamps.TEMPLATE_UID,
            "clusterspace.io/deleting",
            "clusterspace.io/hub-id",
            "kubernetes-fleet.io/parent-CRP",
            f"{RBAC}/aggregate-to-admin",
            "Work.Karmada.io/anything",
        )
    ),
]
GRANT_POINTERS = ["/rules", "/rules/0", "/roleRef", "/roleRef/name", "/subjects", "/subjects/-",
                  "/aggregationRule"]  # fmt: skip


def overriders_at(pointer: str) -> dict[str, Object]:
    """Return every way to change what a pointer names, by its name."""
    into = {"subPath": "", "operator": "replace", "value": "ClusterRoleBinding"}
    tag = {"component": "Tag", "operator": "replace", "value": "x"}
    patches = {
        f"plaintext {operator}": {
            "plaintext": [{"path": pointer, "operator": operator, "value": "x"}]
        }
        for operator in ("add", "replace", "remove")
    }
    return {
        **patches,
        "image": {"imageOverrider": [{**tag, "predicate": {"path": pointer}}]},
        "yaml": {"fieldOverrider": [{"fieldPath": pointer, "yaml": [into]}]},
        "json": {"fieldOverrider": [{"fieldPath": pointer, "json": [into]}]},
    }


def policy_with(overriders: Object, kind: str, **selecting: Any) -> Object:
    metadata = {"name": "o", **({} if kind.startswith("Cluster") else {"namespace": TENANT})}
    return {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"overrideRules": [{"overriders": overriders}], **selecting},
    }


@pytest.mark.parametrize("kind", ["OverridePolicy", "ClusterOverridePolicy"])
@pytest.mark.parametrize("pointer", [*IDENTITY_POINTERS, *GRANT_POINTERS])
def test_admission_refuses_every_pointer_at_what_an_object_is(pointer: str, kind: str) -> None:
    let_pass = [
        way
        for way, overriders in overriders_at(pointer).items()
        # Without a path an image overrider means containers.
        if not override_causes(policy_with(overriders, kind)) and (pointer or way != "image")
    ]

    assert let_pass == []


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("operator", ["add", "replace", "remove"])
def test_admission_refuses_the_control_planes_marks_in_maps(field: str, operator: str) -> None:
    marks = {stamps.MANAGED: "true"}
    listed = {f"{field}Overrider": [{"operator": operator, "value": marks}]}
    whole = {"plaintext": [{"path": f"/metadata/{field}", "operator": operator, "value": marks}]}

    assert override_causes(policy_with(listed, "OverridePolicy"))
    assert override_causes(policy_with(whole, "OverridePolicy"))


def test_pointers_at_what_an_object_says_pass() -> None:
    fine = [
        "/spec/replicas",
        "/data/kind",
        "/data/metadata",
        "/metadata/labels",
        "/metadata/labels/app",
        "/metadata/annotations/example.com~1owner",
        write_pointer(("metadata", "labels", stamps.RETAIN_REPLICAS)),
    ]
    patches = [{"path": each, "operator": "add", "value": "x"} for each in fine]
    # Roles are not meant, so their words are just words.
    selector = {"apiVersion": "example.com/v1", "kind": "Widget", "namespace": TENANT}
    rules = [*patches, {"path": "/rules", "operator": "add", "value": []}]
    policy = policy_with({"plaintext": rules}, "OverridePolicy", resourceSelectors=[selector])

    assert override_causes(policy) == ()


def forbidden_differences(template: Object, overridden: Object) -> list[str]:
    """Return what an override changed that it may not; an oracle of its own, by what is stored."""
    found = [each for each in ("apiVersion", "kind") if template[each] != overridden.get(each)]
    before, after = metadata_of(template), metadata_of(overridden)
    found += [
        each
        for each in before.keys() | after.keys()
        if each not in ("labels", "annotations") and before.get(each) != after.get(each)
    ]
    for read in (labels_of, annotations_of):
        ours = [
            {
                key: value
                for key, value in read(each).items()
                if ".io/" in key and "example" not in key
            }
            for each in (template, overridden)
        ]
        found += ["marks"] if not ours[1].items() <= ours[0].items() else []
    if template["apiVersion"].startswith(RBAC):
        rest = [
            {k: v for k, v in each.items() if k != "metadata"} for each in (template, overridden)
        ]
        found += ["grants"] if rest[0] != rest[1] else []
    extra = {each.lower() for each in overridden.keys() - template.keys()}
    return found + sorted(extra & {"apiversion", "kind", "metadata"})


def outcome(template: Object, *rules: Object) -> Object | None:
    """Return what overrides make of a template, or None when they are refused."""
    policies = [policy_with(each, "OverridePolicy") for each in rules]
    try:
        made = override(template, Traits(MEMBER, {}), OverridePolicies(namespaced=policies))
    except OverrideFailed:
        return None
    return made.manifest


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda each: each["kind"])
@pytest.mark.parametrize("pointer", [*IDENTITY_POINTERS, *GRANT_POINTERS])
def test_rendering_refuses_what_admission_never_saw(pointer: str, template: Object) -> None:
    for way, overriders in overriders_at(pointer).items():
        made = outcome(template, overriders)

        assert made is None or forbidden_differences(template, made) == [], way


_steps = st.sampled_from(
    ["metadata", "labels", "annotations", "kind", "apiVersion", "name", "namespace", "rules",
     "roleRef", "subjects", "data", "spec", "0", "-", "", stamps.POLICY_ID, stamps.POLICY_NAME,
     stamps.CONFLICT_RESOLUTION, "app", "Kind"]
)  # fmt: skip
_pointers = st.lists(_steps, max_size=4).map(lambda steps: write_pointer(tuple(steps)))
_values = st.one_of(
    st.sampled_from(["ClusterRoleBinding", f"{RBAC}/v1", "kube-system", None, 1, [], {}, [ROOT]]),
    st.dictionaries(_steps, st.sampled_from(["x", "overwrite", "true"]), max_size=3),
    st.just(cluster_role_binding("web")),
)
_patches = st.fixed_dictionaries(
    {"path": _pointers, "operator": st.sampled_from(["add", "remove", "replace"]), "value": _values}
)
_words = st.fixed_dictionaries(
    {
        "operator": st.sampled_from(["add", "remove", "replace"]),
        "value": st.dictionaries(_steps, st.just("x"), max_size=3),
    }
)
_documents = st.fixed_dictionaries(
    {
        "fieldPath": _pointers,
        "yaml": st.just([{"subPath": "", "operator": "replace", "value": "ClusterRoleBinding"}]),
    }
)
_images = st.fixed_dictionaries(
    {
        "component": st.sampled_from(["Registry", "Repository", "Tag"]),
        "operator": st.sampled_from(["add", "replace"]),
        "value": st.sampled_from(["rbac", "x"]),
        "predicate": st.fixed_dictionaries({"path": _pointers}),
    }
)
_rules = st.fixed_dictionaries(
    {},
    optional={
        "plaintext": st.lists(_patches, max_size=4),
        "labelsOverrider": st.lists(_words, max_size=2),
        "annotationsOverrider": st.lists(_words, max_size=2),
        "fieldOverrider": st.lists(_documents, max_size=2),
        "imageOverrider": st.lists(_images, max_size=2),
    },
)


@given(template=st.sampled_from(TEMPLATES), rules=st.lists(_rules, min_size=1, max_size=3))
def test_no_overrides_of_any_shape_make_another_object(
    template: Object, rules: list[Object]
) -> None:
    made = outcome(template, *rules)

    assert made is None or forbidden_differences(template, made) == []
