from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.propagation.works.work_objects import binding, outlines, template, work

from clusterspace.apis import stamps
from clusterspace.apis.clusters import WORK_FINALIZER
from clusterspace.apis.works import cluster_of, manifests_of, preserves_resources
from clusterspace.fleet.propagation.works.rendering import (
    find_orphans,
    is_free_for,
    plan_farewell,
    plan_works,
)
from clusterspace.kube.objects import Object, annotations_of, labels_of, with_metadata, with_value

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
