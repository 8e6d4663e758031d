"""Reading bindings, as the corpus has them."""

from typing import Any

from tests.corpus import load_scenario

from clusterspace.apis import works
from clusterspace.apis.works import Requirer, TargetCluster
from clusterspace.kube.resources import GroupVersionKind


def recorded() -> dict[str, Any]:
    steps = load_scenario("karmada", "divided")["steps"]
    return next(step["objects"] for step in steps if step.get("see") == "hub: rb div-deployment")


def test_a_recorded_binding_tells_its_template_and_clusters() -> None:
    binding = recorded()

    about = works.template_of(binding)

    assert about.group_version_kind == GroupVersionKind("apps", "v1", "Deployment")
    assert (about.namespace, about.name, about.uid) == ("default", "div", "<uid:1>")
    assert works.controller_uid_of(binding) == about.uid
    assert works.clusters_of(binding) == (
        TargetCluster("member1", 2),
        TargetCluster("member2", 4),
    )
    assert works.replicas_of(binding) == 6
    assert works.conflict_resolution_of(binding) == "Abort"
    assert not works.is_for_cluster_scope(binding)
    assert not works.propagates_dependencies(binding)
    assert not works.preserves_resources(binding)


def test_a_binding_without_anything_reads_as_one_without_anything() -> None:
    assert works.clusters_of({}) == ()
    assert works.requirers_of({}) == ()
    assert works.placement_of({}) is None
    assert works.controller_uid_of({}) == ""
    assert works.template_of({}).name == ""


def test_requirers_come_with_their_clusters() -> None:
    entry = {"namespace": "shop", "name": "web-deployment", "clusters": [{"name": "one"}]}

    found = works.requirers_of({"spec": {"requiredBy": [entry]}})

    assert found == (Requirer("shop", "web-deployment", (TargetCluster("one"),)),)


def test_what_a_template_has_no_word_for_is_left_out_of_its_reference() -> None:
    role = {"apiVersion": "v1", "kind": "Role", "metadata": {"name": "reader", "uid": "u"}}

    assert works.reference_to(role) == {
        "apiVersion": "v1",
        "kind": "Role",
        "name": "reader",
        "uid": "u",
    }
