from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.propagation.works.work_objects import binding, outlines, template, work

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORK_FINALIZER
from clusterspace.apis.fleet_placements import parent_labels
from clusterspace.apis.works import cluster_of, manifests_of, preserves_resources
from clusterspace.fleet.propagation.overrides import OverridePolicies
from clusterspace.fleet.propagation.works.rendering import (
    conflict_resolution,
    find_orphans,
    is_free_for,
    new_work,
    plan_farewell,
    plan_works,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    with_metadata,
    with_value,
)
from clusterspace.testing.builders import config_map


def rendered(of: Object, held: Object | None = None) -> Object:
    """Return the Work for the first cluster of a binding."""
    return new_work(outlines(of, held)[0], "work-id")


def manifest_in(work: Object) -> Object:
    (manifest,) = manifests_of(work)
    return manifest


def test_a_work_is_in_the_execution_space_of_its_cluster_and_named_after_the_template() -> None:
    work = rendered(binding("north"))

    assert work["metadata"]["namespace"] == "karmada-es-north"
    assert work["metadata"]["name"] == stamps.work_name("Deployment", "default", "web")
    assert work["metadata"]["finalizers"] == [WORK_FINALIZER]


def test_work_and_manifest_name_their_binding() -> None:
    work = rendered(binding("north"))

    for named in (work, manifest_in(work)):
        assert labels_of(named)[stamps.BINDING_ID] == "binding-id"
        assert annotations_of(named)[stamps.BINDING_NAMESPACE] == "default"
        assert annotations_of(named)[stamps.BINDING_NAME] == "web-deployment"


def test_a_binding_without_a_namespace_is_named_by_other_words() -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    held = {**role, "metadata": {"name": "reader", "uid": "uid-of-reader"}}
    bound = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ClusterResourceBinding",
        "metadata": {"name": "reader-clusterrole", "labels": {stamps.CLUSTER_BINDING_ID: "crb"}},
        "spec": {"clusters": [{"name": "north"}]},
    }

    work = rendered(bound, held)

    assert labels_of(work) == {stamps.CLUSTER_BINDING_ID: "crb", stamps.WORK_ID: "work-id"}
    assert annotations_of(work)[stamps.CLUSTER_BINDING_NAME] == "reader-clusterrole"
    assert stamps.BINDING_NAME not in annotations_of(manifest_in(work))


def test_a_manifest_says_whose_it_is_and_where_it_came_from() -> None:
    manifest = manifest_in(rendered(binding("north")))

    assert labels_of(manifest)[stamps.MANAGED] == "true"
    assert labels_of(manifest)[stamps.WORK_ID] == "work-id"
    annotations = annotations_of(manifest)
    assert annotations[stamps.TEMPLATE_UID] == "uid-of-web"
    assert annotations[stamps.TEMPLATE_GENERATION] == "2"
    assert annotations[stamps.WORK_NAMESPACE] == "karmada-es-north"
    assert annotations[stamps.WORK_NAME] == stamps.work_name("Deployment", "default", "web")


def test_kinds_that_do_not_count_generations_have_none() -> None:
    held = with_metadata(config_map("web"), uid="uid-of-web")

    assert stamps.TEMPLATE_GENERATION not in annotations_of(
        manifest_in(rendered(binding("north"), held))
    )


def test_the_lists_of_managed_marks_are_sorted_and_complete() -> None:
    held = template(labels={"z": "1", "a": "2"}, annotations={"mine": "yes"})

    manifest = manifest_in(rendered(binding("north"), held))

    annotations = annotations_of(manifest)
    assert annotations[stamps.MANAGED_LABELS_LIST] == ",".join(sorted(labels_of(manifest)))
    assert annotations[stamps.MANAGED_ANNOTATIONS_LIST] == ",".join(sorted(annotations))
    assert annotations[stamps.MANAGED_LABELS_LIST].startswith("a,karmada.io/managed,")
    assert "mine" in annotations[stamps.MANAGED_ANNOTATIONS_LIST].split(",")
    assert stamps.MANAGED_ANNOTATIONS_LIST in annotations[stamps.MANAGED_ANNOTATIONS_LIST]


def test_what_the_hub_wrote_is_left_behind() -> None:
    metadata = manifest_in(rendered(binding("north")))["metadata"]

    assert set(metadata) == {"name", "namespace", "labels", "annotations"}


def test_a_cluster_with_a_share_runs_its_share_and_one_without_runs_the_templates() -> None:
    assert find_at(manifest_in(rendered(binding("north", replicas=1))), "spec", "replicas") == 1
    assert find_at(manifest_in(rendered(binding("north"))), "spec", "replicas") == 3


def test_a_template_that_was_just_scaled_up_runs_nowhere_until_it_is_shared_out() -> None:
    not_yet_shared = with_value(binding("north", "south"), 6, "spec", "replicas")

    assert find_at(manifest_in(rendered(not_yet_shared)), "spec", "replicas") == 0


def test_a_cluster_that_only_needs_the_object_runs_the_templates_count() -> None:
    needed = [{"namespace": "default", "name": "other", "clusters": [{"name": "south"}]}]

    shared, required = outlines(binding("north", replicas=1, requiredBy=needed))

    counts = [manifest_in(new_work(each, "id"))["spec"]["replicas"] for each in (shared, required)]
    assert counts == [1, 3]


def moving(*clusters: str, **task: Any) -> Object:
    """Return a binding that was told to leave west, and what its copy there had reached."""
    last: Object = {
        "fromCluster": "west",
        "purgeMode": "Directly",
        "clustersBeforeFailover": ["west"],
    }
    last["preservedLabelState"] = {"checkpoint": "42"}
    return binding(*clusters, gracefulEvictionTasks=[{**last, **task}])


@pytest.mark.parametrize(
    ("moved", "wanted"),
    [
        pytest.param(moving("north"), "42", id="to its only new place"),
        pytest.param(moving("west"), None, id="not where it was before"),
        pytest.param(moving("north", "south"), None, id="not to one of several"),
        pytest.param(moving("north", purgeMode="Gracefully"), None, id="not beside the old copy"),
    ],
)
def test_state_is_taken_along_where_there_is_no_doubt(moved: Object, wanted: str | None) -> None:
    assert labels_of(manifest_in(rendered(moved))).get("checkpoint") == wanted


def test_a_divided_job_shares_its_completions() -> None:
    held = with_metadata(config_map("web"), uid="uid-of-web")
    job = {
        **held,
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"parallelism": 4, "completions": 8},
    }
    divided = {"replicaScheduling": {"replicaSchedulingType": "Divided"}}
    bound = binding("north", "south", replicas=2, placement=divided)

    specs = [manifest_in(new_work(each, "id"))["spec"] for each in outlines(bound, job)]

    assert specs == [{"parallelism": 2, "completions": 4}] * 2
    duplicated = binding("north", replicas=4)
    assert manifest_in(rendered(duplicated, job))["spec"]["completions"] == 8


@pytest.mark.parametrize(
    ("told", "policy", "resolution"),
    [
        (None, None, "abort"),
        (None, "Abort", "abort"),
        (None, "Overwrite", "overwrite"),
        ("abort", None, "abort"),
        ("abort", "Abort", "abort"),
        ("abort", "Overwrite", "abort"),
        ("overwrite", None, "overwrite"),
        ("overwrite", "Abort", "overwrite"),
        ("overwrite", "Overwrite", "overwrite"),
        ("nonsense", "Overwrite", "overwrite"),
        ("nonsense", None, "abort"),
    ],
)
def test_the_word_of_the_object_counts_more_than_the_policys(
    told: str | None, policy: str | None, resolution: str
) -> None:
    bound = binding("north")
    if policy is not None:
        bound = with_value(bound, policy, "spec", "conflictResolution")
    annotations = {} if told is None else {stamps.CONFLICT_RESOLUTION: told}
    held = template(annotations=annotations)

    assert conflict_resolution(bound, held) == resolution
    work = rendered(bound, held)
    for named in (work, manifest_in(work)):
        assert annotations_of(named)[stamps.CONFLICT_RESOLUTION] == resolution


@pytest.mark.parametrize(
    ("told", "strategy", "resolution"),
    [
        ("overwrite", "Abort", "abort"),
        ("abort", "Overwrite", "abort"),
        (None, "Overwrite", "overwrite"),
    ],
)
def test_a_template_cannot_have_more_taken_over_than_its_placement_says(
    told: str | None, strategy: str, resolution: str
) -> None:
    bound = with_value(binding("north"), strategy, "spec", "conflictResolution")
    bound = with_metadata(bound, labels={**labels_of(bound), **parent_labels("everything")})
    annotations = {} if told is None else {stamps.CONFLICT_RESOLUTION: told}

    assert conflict_resolution(bound, template(annotations=annotations)) == resolution


def test_a_work_says_whether_to_wait_and_what_to_keep() -> None:
    def options(**spec: Any) -> tuple[bool, bool]:
        made = rendered(binding("north", **spec))["spec"]
        return made["suspendDispatching"], made["preserveResourcesOnDeletion"]

    assert options() == (False, False)
    assert options(suspension={"dispatching": True}) == (True, False)
    assert options(preserveResourcesOnDeletion=True) == (False, True)


def test_overrides_come_before_stamps_and_are_noted_on_the_work_alone() -> None:
    wipe = {
        "plaintext": [
            {"path": "/metadata/annotations", "operator": "add", "value": {"where": "north"}},
            {"path": "/metadata/labels", "operator": "add", "value": {"tier": "gold"}},
        ]
    }
    policy = {"metadata": {"name": "wipe"}, "spec": {"overrideRules": [{"overriders": wipe}]}}
    policies = OverridePolicies(cluster_wide=[policy])
    held = template(annotations={"gone": "yes"})

    (outline,) = outlines(binding("north"), held, policies)
    work = new_work(outline, "work-id")
    manifest = manifest_in(work)

    assert annotations_of(manifest)["where"] == "north"
    assert "gone" not in annotations_of(manifest)
    assert (labels_of(manifest)["tier"], labels_of(manifest)[stamps.MANAGED]) == ("gold", "true")
    assert stamps.APPLIED_CLUSTER_OVERRIDES in annotations_of(work)
    assert stamps.APPLIED_OVERRIDES not in annotations_of(work)
    assert stamps.APPLIED_CLUSTER_OVERRIDES not in annotations_of(manifest)


def test_rendering_leaves_the_template_as_it_was() -> None:
    held = with_value(template(), {"replicas": 3}, "status")
    before = repr(held)

    rendered(binding("north", replicas=1), held)

    assert repr(held) == before


CLUSTERS = ("east", "north", "south", "west")


def never() -> str:
    raise AssertionError("no Work should be made")


def as_present(*clusters: str) -> dict[str, Object]:
    return {each: work(each) for each in clusters}


def test_a_cluster_without_a_work_gets_one_with_a_new_id() -> None:
    ids = iter(("first", "second"))

    changes = plan_works(outlines(binding("north", "south")), {}, lambda: next(ids))

    assert [change.before for change in changes] == [None, None]
    assert [labels_of(change.after)[stamps.WORK_ID] for change in changes] == ["first", "second"]
    manifest = manifests_of(changes[0].after)[0]
    assert labels_of(manifest)[stamps.WORK_ID] == "first"


def test_a_work_that_is_as_it_should_be_is_not_written() -> None:
    assert plan_works(outlines(binding("north")), as_present("north"), never) == ()


def test_a_changed_template_changes_the_work_and_not_its_id() -> None:
    changed = with_value(template(), 9, "spec", "replicas")

    (change,) = plan_works(outlines(binding("north"), changed), as_present("north"), never)

    assert change.before == work("north")
    assert labels_of(change.after)[stamps.WORK_ID] == "work-in-north"
    assert manifests_of(change.after)[0]["spec"]["replicas"] == 9


def test_the_marks_of_others_stay_and_notes_of_overrides_that_are_gone_go() -> None:
    held = work("north")
    marked = with_metadata(
        held,
        labels={**labels_of(held), "theirs": "1"},
        annotations={**annotations_of(held), "theirs": "1", stamps.APPLIED_OVERRIDES: "[]"},
    )

    (change,) = plan_works(outlines(binding("north")), {"north": marked}, never)

    assert labels_of(change.after)["theirs"] == "1"
    assert annotations_of(change.after)["theirs"] == "1"
    assert stamps.APPLIED_OVERRIDES not in annotations_of(change.after)


def test_a_finalizer_that_somebody_took_is_put_back() -> None:
    (change,) = plan_works(
        outlines(binding("north")), {"north": work("north", finalizers=None)}, never
    )

    assert change.after["metadata"]["finalizers"] == [WORK_FINALIZER]


def test_a_work_on_its_way_out_is_waited_for() -> None:
    leaving = work("north", deletionTimestamp="2026-01-01T00:00:00Z")

    assert plan_works(outlines(binding("north")), {"north": leaving}, never) == ()


def test_orphans_are_the_works_of_clusters_that_are_not_kept() -> None:
    leaving = work("west", deletionTimestamp="2026-01-01T00:00:00Z")
    present = [work("north"), work("south"), leaving]

    assert find_orphans(present, frozenset({"north"})) == (work("south"),)


def test_a_work_learns_what_its_cluster_keeps_before_it_goes() -> None:
    assert not plan_farewell(work("north"), is_preserved=False).is_needed
    farewell = plan_farewell(work("north"), is_preserved=True)

    assert farewell.is_needed
    assert preserves_resources(farewell.after)


def test_only_a_work_of_the_same_template_and_no_binding_is_free() -> None:
    bound = work("north")
    unbound = with_metadata(bound, annotations=None)

    assert is_free_for(unbound, template())
    assert not is_free_for(bound, template())
    assert not is_free_for(unbound, template("other"))


@given(st.sets(st.sampled_from(CLUSTERS)), st.sets(st.sampled_from(CLUSTERS)))
def test_writing_the_plan_and_removing_orphans_leads_to_what_is_wanted(
    wanted: set[str], present: set[str]
) -> None:
    there = as_present(*present)
    bound = outlines(binding(*sorted(wanted)))

    changes = plan_works(bound, there, lambda: "new")
    orphans = find_orphans(there.values(), frozenset(wanted))

    written = {cluster_of(change.after): change.after for change in changes}
    left = {**there, **written}
    for orphan in orphans:
        del left[cluster_of(orphan)]
    assert set(left) == wanted
    assert plan_works(bound, left, never) == ()
    assert find_orphans(left.values(), frozenset(wanted)) == ()
