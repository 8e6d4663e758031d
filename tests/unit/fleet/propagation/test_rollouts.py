"""Which state of a template a cluster gets, what a new state is, and when a cluster is well."""

from typing import Any

import pytest

from clusterspace.apis.fleet_placements import MANIFEST_HASH
from clusterspace.apis.rollouts import (
    BindingRevisions,
    new_run,
    policy_key_of,
    revisions_of,
    run_name,
    run_number,
    with_revisions,
)
from clusterspace.apis.staged_updates import is_over
from clusterspace.fleet.propagation.placements.overrides import NO_OVERRIDES
from clusterspace.fleet.propagation.placements.staged_updates import (
    RunProgress,
    RunView,
    initial_status,
)
from clusterspace.fleet.propagation.rollouts.decisions import (
    PolicyTarget,
    StagedCopy,
    at_once,
    changing_part,
    overrides_about,
    problem_of,
    revision_for_newcomer,
)
from clusterspace.fleet.propagation.templates import rolled_out_state, staged_revision
from clusterspace.kube.objects import Object, with_metadata, with_value

TEMPLATE: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop", "uid": "1", "generation": 3},
    "spec": {"template": {"spec": {"containers": [{"image": "web:1"}]}}},
}
GOING = BindingRevisions("new", "old", {"one": "new", "two": "old"}, "web-1")
STRATEGY: Object = {"rollout": {"strategyName": "rings"}}
CLAIMED = {"labels": {"propagationpolicy.karmada.io/permanent-id": "1"}}


def binding(revisions: BindingRevisions | None = GOING, **spec: Any) -> Object:
    bare: Object = {"metadata": {"name": "web", **CLAIMED}, "spec": {**STRATEGY, **spec}}
    return bare if revisions is None else with_revisions(bare, revisions)


@pytest.mark.parametrize(
    ("held", "cluster", "state"),
    [
        (binding(), "one", "new"),
        (binding(), "two", "old"),
        (binding(), "three", None),
        (binding(BindingRevisions("new", "new")), "three", "new"),
        (binding(None), "one", None),
        (with_metadata(binding(), labels=None), "three", "old"),
        (with_metadata(binding(None), labels=None), "one", ""),
        (binding(rollout=None), "one", ""),
    ],
    ids=[
        "brought on", "not brought on yet", "new in the middle of a rollout", "new after one",
        "nothing decided yet", "new, and no policy claims it", "never staged", "no rollout",
    ],
)  # fmt: skip
def test_a_cluster_gets_the_state_that_its_binding_says(
    held: Object, cluster: str, state: str | None
) -> None:
    assert staged_revision(held, cluster) == state


def test_what_a_binding_says_is_read_as_it_was_written() -> None:
    assert revisions_of(binding()) == GOING
    assert revisions_of({"spec": {"revisions": {"latest": "new"}}}) is None


@pytest.mark.parametrize("is_over", [True, False])
def test_a_newcomer_gets_what_its_stage_was_brought_to(is_over: bool) -> None:
    stages = [{"name": ring, "labelSelector": {"matchLabels": {"ring": ring}}} for ring in "ab"]
    done = {"type": "Succeeded", "status": "True"}
    states = [{"conditions": [done] if is_over else []}, {}]
    run: Object = {
        "status": {"stagedUpdateStrategySnapshot": {"stages": stages}, "stagesStatus": states}
    }
    assert revision_for_newcomer(run, {"ring": "a"}, GOING) == ("new" if is_over else "old")
    assert revision_for_newcomer(run, {"ring": "b"}, GOING) == "old"
    assert revision_for_newcomer(run, {}, GOING) == "old"
    assert revision_for_newcomer(None, {"ring": "a"}, GOING) == "old"


NOTED = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
MARKED = {"labels": {"propagationpolicy.karmada.io/permanent-id": "2"}}


@pytest.mark.parametrize(
    "same",
    [
        with_metadata(TEMPLATE, generation=4, resourceVersion="9"),
        with_metadata(TEMPLATE, annotations=NOTED),
        with_metadata(TEMPLATE, **MARKED),
        {**TEMPLATE, "status": {"replicas": 1}},
    ],
    ids=["its versions", "what a tool notes", "our marks", "its status"],
)
def test_what_its_author_did_not_write_is_no_new_state(same: Object) -> None:
    assert changing_part(same) == changing_part(TEMPLATE)


def test_labels_and_images_make_a_new_state() -> None:
    labelled = with_metadata(TEMPLATE, labels={"tier": "web"})
    other = with_value(TEMPLATE, {"spec": {}}, "spec", "template")
    assert changing_part(labelled) != changing_part(TEMPLATE) != changing_part(other)


def test_a_stored_state_has_the_marks_of_today() -> None:
    today = with_metadata(TEMPLATE, uid="2", labels={**CLAIMED["labels"], "mine": "no"})
    shown = rolled_out_state(with_metadata(TEMPLATE, uid=None), today)
    assert shown["metadata"]["uid"] == "2"
    assert shown["metadata"]["labels"] == CLAIMED["labels"]


def test_only_overrides_about_the_template_belong_to_its_state() -> None:
    def policy(name: str, *selectors: Object) -> Object:
        return {"metadata": {"name": name}, "spec": {"resourceSelectors": list(selectors)}}

    ours: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    policies = [policy("z", ours), policy("a"), policy("other", {**ours, "name": "api"})]
    found = overrides_about(TEMPLATE, policies, "OverridePolicy")
    assert [each["metadata"]["name"] for each in found] == ["a", "z"]


def work(**status: Any) -> Object:
    applied = {"type": "Applied", "status": "True", "observedGeneration": 2, **status}
    return {
        "metadata": {"generation": 2, "annotations": {MANIFEST_HASH: "new"}},
        "spec": {"workload": {"manifests": []}},
        "status": {"conditions": [applied]},
    }


@pytest.mark.parametrize(
    ("held", "problem"),
    [
        (work(), ""),
        (None, "is still to be handed to the cluster"),
        (with_metadata(work(), annotations={MANIFEST_HASH: "old"}), "is still to be handed"),
        (with_metadata(work(), generation=3), "is not told of yet"),
        (work(status="False", message="no such kind"), "no such kind"),
        (with_value(work(), True, "spec", "suspendDispatching"), "suspended"),
        (with_value(work(), [{"type": "Applied", "status": "True"}], "status", "conditions"),
         "without a generation"),
    ],
)  # fmt: skip
def test_a_cluster_is_well_when_it_says_so_of_this_state(held: Object | None, problem: str) -> None:
    found = problem_of(held, "new")
    assert problem in found
    assert bool(found) == bool(problem)


def copy(revision: str, problem: str = "") -> StagedCopy:
    return StagedCopy("ConfigMap a", revision, "new", "old", lambda: problem)


@pytest.mark.parametrize(
    ("copies", "is_bound", "is_in_change"),
    [
        ((copy("old"), copy("old")), False, False),
        ((copy("new"), copy("old")), False, True),
        ((copy("old", "is not healthy"),), False, True),
        ((copy("new"), copy("new")), True, True),
    ],
    ids=["behind", "half", "broken", "brought on"],
)
def test_a_cluster_that_was_left_halfway_is_in_change(
    copies: tuple[StagedCopy, ...], is_bound: bool, is_in_change: bool
) -> None:
    target = PolicyTarget(copies)
    assert target.is_bound("", NO_OVERRIDES) is is_bound
    assert target.is_in_change is is_in_change


def test_the_way_back_waits_for_nothing() -> None:
    tasks = {"beforeStageTasks": [{"type": "Approval"}], "afterStageTasks": [{"type": "Approval"}]}
    strategy: Object = {"spec": {"stages": [{"name": "a", "maxConcurrency": 2, **tasks}]}}
    assert at_once(strategy)["spec"]["stages"] == [{"name": "a", "maxConcurrency": 2}]


@pytest.mark.parametrize("policy", ["web", "a" * 80])
def test_a_run_is_of_its_policy_and_a_label_has_room_for_its_name(policy: str) -> None:
    name = run_name(policy, 12)
    assert run_number(name) == 12
    assert len(name) <= 63
    made: Object = {
        "kind": "PropagationPolicy",
        "metadata": {"name": policy, "namespace": "shop", "uid": "1"},
        "spec": STRATEGY,
    }
    run = new_run(made, name, is_rollback=False)
    assert policy_key_of(run) == f"shop/{policy}"
    assert policy_key_of({**run, "metadata": {"name": name, "namespace": "shop"}}) == ""


def test_a_run_looks_at_the_clusters_of_the_stage_it_is_at() -> None:
    """With a look at every cluster for each stage that ends, 1,000 in ten were 10,000."""
    clusters = {f"member{number}": str(number % 10) for number in range(1000)}
    stages = [
        {"name": f"s{each}", "labelSelector": {"matchLabels": {"ring": str(each)}}}
        for each in range(10)
    ]
    bounded: Object = {"spec": {"stages": [{**each, "maxConcurrency": "100%"} for each in stages]}}
    looks: list[str] = []
    brought: set[str] = set()

    def view() -> RunView:
        def target(name: str) -> PolicyTarget:
            def look() -> str:
                looks.append(name)
                return ""

            revision = "new" if name in brought else "old"
            copies = (StagedCopy("ConfigMap a", revision, "new", "old", look),)
            return PolicyTarget(copies, {"ring": clusters[name]})

        return RunView("web-1", {name: target(name) for name in clusters})

    run: Object = {"metadata": {"name": "web-1", "generation": 1}, "spec": {"state": "Run"}}
    run["status"] = initial_status(bounded, view(), {}, 1, 0.0)
    for _ in range(100):
        step = RunProgress(run, view(), 0.0).advance()
        brought |= {name for name, _ in step.forward}
        run = {**run, "status": step.status}
        if is_over(run):
            break

    assert brought == clusters.keys()
    assert is_over(run)
    # Once before it is brought there, and once when it has arrived; either may ask twice.
    assert len(looks) <= 4 * len(clusters)
