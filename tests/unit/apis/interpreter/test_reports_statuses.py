"""What members report of their objects, and what many such reports add up to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.reports import (
    Reports,
    aggregated_status,
    is_aggregated,
    reflect_status,
)
from clusterspace.apis.works import Report
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupKind


def live(
    api_version: str, kind: str, status: Any, spec: Any = None, *, generation: int = 4
) -> Object:
    annotations = {stamps.TEMPLATE_GENERATION: "7"}
    metadata = {"name": "x", "generation": generation, "annotations": annotations}
    body: Object = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    return {**body, "spec": spec or {}, **({"status": status} if status is not None else {})}


def test_a_workload_tells_its_counters_and_which_template_they_are_of() -> None:
    available = {"type": "Available", "status": "True", "lastTransitionTime": "now"}
    conditions = [{"type": "Odd"}, {**available, "lastUpdateTime": "later"}]
    status = {"replicas": 3, "observedGeneration": 4, "conditions": conditions}

    assert reflect_status(live("apps/v1", "Deployment", status)) == {
        "replicas": 3,
        "observedGeneration": 4,
        "conditions": [available],
        "generation": 4,
        "resourceTemplateGeneration": 7,
    }


def test_a_stateful_set_tells_what_its_controller_has_seen() -> None:
    told = reflect_status(live("apps/v1", "StatefulSet", {"observedGeneration": 4}))

    assert told == {"observedGeneration": 4, "generation": 4, "resourceTemplateGeneration": 7}


@pytest.mark.parametrize(
    ("api_version", "kind", "status", "told"),
    [
        ("batch/v1", "Job", {"active": 1, "ready": 1}, {"active": 1}),
        ("policy/v1", "PodDisruptionBudget", {"expectedPods": 2, "x": 1}, {"expectedPods": 2}),
        ("autoscaling/v2", "HorizontalPodAutoscaler", {"desiredReplicas": 2, "x": 1},
         {"desiredReplicas": 2}),
        ("networking.k8s.io/v1", "Ingress", {"loadBalancer": {}}, {"loadBalancer": {}}),
        ("example.com/v1", "Gadget", {"phase": "Fine"}, {"phase": "Fine"}),
        ("v1", "ConfigMap", None, None),
        ("v1", "Namespace", {}, None),
    ],
)  # fmt: skip
def test_a_kind_tells_what_can_be_summed_up_and_a_stranger_tells_all(
    api_version: str, kind: str, status: Any, told: Any
) -> None:
    assert reflect_status(live(api_version, kind, status)) == told


def test_only_a_service_with_a_load_balancer_has_something_to_tell() -> None:
    status = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}

    assert reflect_status(live("v1", "Service", status, {"type": "LoadBalancer"})) == status
    assert reflect_status(live("v1", "Service", status, {"type": "ClusterIP"})) is None


def template(
    api_version: str, kind: str, *, generation: int = 2, status: Object | None = None, **spec: Any
) -> Object:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": "web", "generation": generation},
        "spec": spec,
        "status": status or {},
    }


def told(*statuses: Object | None, due: int | None = None) -> Reports:
    reports = tuple(
        Report(f"member{number}", is_applied=True, status=status)
        for number, status in enumerate(statuses, 1)
    )
    return Reports(reports, len(reports) if due is None else due)


def seen(generation: int = 2, **counters: int) -> Object:
    """Return what a cluster reports that works on this generation of the template."""
    return {
        "generation": 5,
        "observedGeneration": 5,
        "resourceTemplateGeneration": generation,
        **counters,
    }


def deployment_status(reports: Reports, **status: Any) -> Object:
    return aggregated_status(template("apps/v1", "Deployment", status=status), reports)


COUNTED = [
    (
        "Deployment",
        (
            "availableReplicas",
            "readyReplicas",
            "replicas",
            "unavailableReplicas",
            "updatedReplicas",
        ),
    ),
    ("ReplicaSet", ("availableReplicas", "fullyLabeledReplicas", "readyReplicas", "replicas")),
    (
        "StatefulSet",
        ("availableReplicas", "currentReplicas", "readyReplicas", "replicas", "updatedReplicas"),
    ),
    (
        "DaemonSet",
        (
            "currentNumberScheduled",
            "desiredNumberScheduled",
            "numberAvailable",
            "numberMisscheduled",
            "numberReady",
            "numberUnavailable",
            "updatedNumberScheduled",
        ),
    ),
]


@pytest.mark.parametrize(("kind", "fields"), COUNTED)
def test_the_counters_of_workloads_are_summed(kind: str, fields: tuple[str, ...]) -> None:
    counters = dict.fromkeys(fields, 2)

    status = aggregated_status(template("apps/v1", kind), told(seen(**counters), seen(**counters)))

    assert status == {**dict.fromkeys(fields, 4), "observedGeneration": 2}


@pytest.mark.parametrize(
    ("kind", "zeros"),
    [
        ("Deployment", ()),
        ("ReplicaSet", ("replicas",)),
        ("StatefulSet", ("availableReplicas", "replicas")),
        (
            "DaemonSet",
            (
                "currentNumberScheduled",
                "desiredNumberScheduled",
                "numberMisscheduled",
                "numberReady",
            ),
        ),
    ],
)
def test_zeros_are_told_only_where_kubernetes_requires_them(
    kind: str, zeros: tuple[str, ...]
) -> None:
    held = {"readyReplicas": 3, "numberAvailable": 3}

    status = aggregated_status(template("apps/v1", kind, status=held), told())

    assert {**dict.fromkeys(zeros, 0)}.items() <= status.items()
    counted = dict(COUNTED)[kind]
    assert {key for key in status if key in counted} == set(zeros)


@pytest.mark.parametrize("kind", [kind for kind, _ in COUNTED])
def test_a_generation_is_observed_when_every_cluster_works_on_it(kind: str) -> None:
    workload = template("apps/v1", kind, status={"observedGeneration": 1})

    everywhere = aggregated_status(workload, told(seen(), seen()))
    not_yet = aggregated_status(workload, told(seen(), seen(generation=1)))

    assert everywhere["observedGeneration"] == 2
    assert not_yet["observedGeneration"] == 1


def test_a_generation_the_member_has_but_did_not_look_at_is_not_observed() -> None:
    lagging = {"generation": 5, "observedGeneration": 4, "resourceTemplateGeneration": 2}

    assert "observedGeneration" not in deployment_status(told(seen(), lagging))


def test_a_cluster_that_has_not_reported_yet_holds_the_generation_back() -> None:
    assert "observedGeneration" not in deployment_status(told(seen(), None))
    assert "observedGeneration" not in deployment_status(told(seen(), due=2))


def test_nobody_observes_what_is_nowhere() -> None:
    assert deployment_status(told(), observedGeneration=1) == {"observedGeneration": 1}


def test_what_others_wrote_into_the_status_stays() -> None:
    conditions = [{"type": "Tested", "status": "True"}]

    status = deployment_status(told(seen(replicas=1)), conditions=conditions, replicas=9)

    assert (status["conditions"], status["replicas"]) == (conditions, 1)


def test_a_cluster_that_reports_nonsense_counts_for_nothing() -> None:
    nonsense: Object = {"replicas": "many", "readyReplicas": None}

    assert deployment_status(told(seen(replicas=2), nonsense))["replicas"] == 2


@given(st.lists(st.integers(0, 1000), max_size=8))
def test_the_sum_does_not_depend_on_the_order_of_clusters(replicas: list[int]) -> None:
    forth = deployment_status(told(*(seen(replicas=count) for count in replicas)))
    back = deployment_status(told(*(seen(replicas=count) for count in reversed(replicas))))

    assert forth == back
    assert forth.get("replicas", 0) == sum(replicas)


def job_status(*statuses: Object | None, due: int | None = None, **held: Any) -> Object:
    return aggregated_status(template("batch/v1", "Job", status=held), told(*statuses, due=due))


def ended(condition_type: str, moment: str, **status: Any) -> Object:
    condition = {"type": condition_type, "status": "True", "lastTransitionTime": moment}
    return {"conditions": [condition], **status}


def test_a_job_is_summed_and_began_when_its_first_part_did() -> None:
    status = job_status(
        {"active": 1, "startTime": "2026-01-01T00:00:05Z"},
        {"active": 2, "succeeded": 1, "failed": 1, "startTime": "2026-01-01T00:00:01Z"},
    )

    assert status == {
        "active": 3,
        "succeeded": 1,
        "failed": 1,
        "startTime": "2026-01-01T00:00:01Z",
    }


def test_a_job_is_complete_when_it_is_complete_everywhere() -> None:
    first = ended("Complete", "2026-01-01T00:01:00Z", completionTime="2026-01-01T00:00:59Z")
    last = ended("Complete", "2026-01-01T00:02:00Z", completionTime="2026-01-01T00:01:59Z")

    assert "conditions" not in job_status(first, {"active": 1})
    assert "conditions" not in job_status(first, due=2)
    status = job_status(first, last)

    assert status["completionTime"] == "2026-01-01T00:01:59Z"
    assert [(each["type"], each["reason"]) for each in status["conditions"]] == [
        ("SuccessCriteriaMet", "CompletionsReached"),
        ("Complete", "Completed"),
    ]
    assert status["conditions"][1]["lastTransitionTime"] == "2026-01-01T00:02:00Z"


def test_a_job_failed_when_it_failed_anywhere() -> None:
    failed = ended("Failed", "2026-01-01T00:01:00Z", failed=1)

    (condition,) = job_status({"active": 1}, failed)["conditions"]

    assert (condition["type"], condition["reason"]) == ("Failed", "JobFailed")
    assert "member2" in condition["message"]


def test_a_finished_job_stays_finished() -> None:
    held = ended("Complete", "2026-01-01T00:01:00Z", succeeded=2)

    assert job_status({"active": 1}, **held) == held


def test_a_cron_job_lists_all_that_runs_and_when_it_last_ran_anywhere() -> None:
    status = aggregated_status(
        template("batch/v1", "CronJob", status={"lastScheduleTime": "2020-01-01T00:00:00Z"}),
        told(
            {"active": [{"name": "a"}], "lastScheduleTime": "2026-01-01T00:00:00Z"},
            {"active": [{"name": "b"}], "lastScheduleTime": "2026-01-02T00:00:00Z"},
            {"lastSuccessfulTime": "2026-01-01T10:00:00Z"},
        ),
    )

    assert status == {
        "active": [{"name": "a"}, {"name": "b"}],
        "lastScheduleTime": "2026-01-02T00:00:00Z",
        "lastSuccessfulTime": "2026-01-01T10:00:00Z",
    }


@pytest.mark.parametrize(
    ("phases", "worst"),
    [
        (["Succeeded", "Running"], "Running"),
        (["Running", "Pending"], "Pending"),
        (["Pending", "Failed"], "Failed"),
        (["Succeeded", "Succeeded"], "Succeeded"),
        (["Running", None], "Pending"),
        (["Dreaming"], "Dreaming"),
    ],
)
def test_a_pod_is_in_the_worst_phase_it_is_in_anywhere(
    phases: list[str | None], worst: str
) -> None:
    reports = told(*(None if phase is None else {"phase": phase} for phase in phases))

    assert aggregated_status(template("v1", "Pod"), reports)["phase"] == worst


def test_a_pod_tells_of_its_containers_whether_they_are_ready_and_what_they_do() -> None:
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    container = {"name": "main", "image": "web:1", "imageID": "x", "ready": True, "state": running}
    blank = {"name": "", "image": "", "imageID": "", "restartCount": 0}

    status = aggregated_status(
        template("v1", "Pod"), told({"phase": "Running", "containerStatuses": [container]})
    )

    assert status["containerStatuses"] == [{**blank, "ready": True, "state": running}]


def test_a_pod_of_which_nothing_is_known_keeps_its_status() -> None:
    held = {"phase": "Running"}

    assert aggregated_status(template("v1", "Pod", status=held), told()) == held


@pytest.mark.parametrize(
    "balanced",
    [
        template("v1", "Service", type="LoadBalancer"),
        template("networking.k8s.io/v1", "Ingress"),
    ],
)
def test_a_load_balancer_has_the_entrances_of_all_clusters_each_once(balanced: Object) -> None:
    one, two = {"ip": "10.0.0.1"}, {"ip": "10.0.0.2", "hostname": "two"}

    status = aggregated_status(
        balanced,
        told({"loadBalancer": {"ingress": [two]}}, {"loadBalancer": {"ingress": [one, two]}}, {}),
    )

    assert status == {"loadBalancer": {"ingress": [one, two]}}


def test_a_service_inside_its_cluster_has_no_status_to_sum_up() -> None:
    service = template("v1", "Service", status={"loadBalancer": {}}, type="ClusterIP")

    assert aggregated_status(service, told({"loadBalancer": {"ingress": [{"ip": "1"}]}})) == {
        "loadBalancer": {}
    }


@pytest.mark.parametrize(
    ("phases", "phase"),
    [
        (["Bound", "Bound"], "Bound"),
        (["Bound", "Pending"], "Pending"),
        (["Pending", "Lost", "Bound"], "Lost"),
    ],
)
def test_a_claim_is_bound_when_it_is_bound_everywhere(phases: list[str], phase: str) -> None:
    claim = template("v1", "PersistentVolumeClaim")

    assert aggregated_status(claim, told(*({"phase": each} for each in phases))) == {"phase": phase}
    assert aggregated_status(claim, told(None)) == {}


@pytest.mark.parametrize(
    ("phases", "phase"),
    [
        (["Released", "Bound"], "Bound"),
        (["Bound", "Available"], "Available"),
        (["Available", "Pending"], "Pending"),
        (["Pending", "Failed"], "Failed"),
    ],
)
def test_a_volume_is_in_the_worst_phase_it_is_in_anywhere(phases: list[str], phase: str) -> None:
    volume = template("v1", "PersistentVolume")

    assert aggregated_status(volume, told(*({"phase": each} for each in phases))) == {
        "phase": phase
    }
    assert aggregated_status(volume, told(None)) == {}


def test_a_disruption_budget_is_summed_and_names_pods_with_their_clusters() -> None:
    counters = {
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "disruptionsAllowed": 1,
        "expectedPods": 2,
    }
    first = {**counters, "disruptedPods": {"web-1": "2026-01-01T00:00:00Z"}}
    held = {"disruptedPods": {"member9/old": "2020-01-01T00:00:00Z"}}

    budget = template("policy/v1", "PodDisruptionBudget", status=held)
    status = aggregated_status(budget, told(first, counters))

    assert status == {
        "currentHealthy": 4,
        "desiredHealthy": 2,
        "disruptionsAllowed": 2,
        "expectedPods": 4,
        "disruptedPods": {"member1/web-1": "2026-01-01T00:00:00Z"},
    }
    assert "disruptedPods" not in aggregated_status(budget, told(counters))


def test_an_autoscaler_is_summed() -> None:
    scaler = template("autoscaling/v2", "HorizontalPodAutoscaler")

    status = aggregated_status(
        scaler, told({"currentReplicas": 1, "desiredReplicas": 2}, {"desiredReplicas": 3})
    )

    assert status == {"currentReplicas": 1, "desiredReplicas": 5}


def test_a_strangers_status_is_left_to_strangers() -> None:
    widget = template("example.com/v1", "Deployment", status={"size": 1})

    assert aggregated_status(widget, told({"size": 5})) == {"size": 1}
    assert not is_aggregated(GroupKind("example.com", "Deployment"))
    assert not is_aggregated(GroupKind("", "ConfigMap"))
    assert is_aggregated(GroupKind("apps", "Deployment"))


# -- conditions --------------------------------------------------------------------------------


def saying(cluster: str, status: str, at: int, kind: str = "Available", **more: str) -> Report:
    condition = {
        "type": kind,
        "status": status,
        "reason": "Because",
        "message": f"it is {status}",
        "lastTransitionTime": f"2026-01-01T00:00:0{at}Z",
        **more,
    }
    return Report(cluster, is_applied=True, status={"conditions": [condition]})


def shown(*reports: Report, missing: tuple[str, ...] = (), **status: Any) -> Object:
    template = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "status": status}
    due = Reports(reports, len(reports) + len(missing), missing)
    conditions = aggregated_status(template, due).get("conditions", [])
    (condition,) = conditions or [{}]
    return condition


def test_a_template_is_available_when_it_is_in_every_cluster() -> None:
    assert shown(saying("a", "True", 1), saying("b", "True", 3)) == {
        "type": "Available",
        "status": "True",
        "reason": "Because",
        "message": "in all clusters: it is True",
        "lastTransitionTime": "2026-01-01T00:00:03Z",
    }


def test_the_cluster_that_holds_it_up_is_named_and_since_when() -> None:
    told = shown(saying("a", "True", 1), saying("c", "False", 4), saying("b", "False", 2))

    assert (told["status"], told["message"]) == ("False", "b: it is False (and 1 more)")
    assert told["lastTransitionTime"] == "2026-01-01T00:00:02Z"


def test_a_cluster_that_said_nothing_yet_is_waited_for_by_name() -> None:
    told = shown(saying("a", "True", 1), missing=("b",))

    assert (told["status"], told["reason"]) == ("Unknown", "NotReported")
    assert told["message"] == "b has not reported it yet"


def test_the_time_stays_while_the_status_does() -> None:
    before = {"type": "Available", "status": "True", "lastTransitionTime": "long ago"}

    told = shown(saying("a", "True", 1), conditions=[before])

    assert (told["lastTransitionTime"], told["message"]) == ("long ago", "a: it is True")


def test_a_failure_anywhere_is_one_of_the_template_and_ends_with_it() -> None:
    failed = shown(
        saying("a", "False", 1, "ReplicaFailure"), saying("b", "True", 2, "ReplicaFailure")
    )

    assert (failed["status"], failed["message"]) == ("True", "b: it is True")
    assert shown(saying("a", "False", 1, "ReplicaFailure"), conditions=[failed]) == {}


def test_a_rollout_that_goes_on_somewhere_goes_on() -> None:
    done = saying("a", "True", 9, "Progressing", reason="NewReplicaSetAvailable")
    going_on = saying("b", "True", 1, "Progressing", reason="ReplicaSetUpdated")

    assert shown(done, going_on)["reason"] == "ReplicaSetUpdated"


@pytest.mark.parametrize("nonsense", ["x", [1], [{"type": 5, "status": {}}], {"type": "Available"}])
def test_nonsense_from_one_cluster_hides_nothing_of_the_others(nonsense: Any) -> None:
    odd = Report("a", is_applied=True, status={"conditions": nonsense})

    told = shown(odd, saying("b", "False", 1))

    assert (told["status"], told["message"]) == ("False", "b: it is False")


def test_what_others_wrote_about_the_template_stays() -> None:
    foreign = {"type": "Approved", "status": "True"}

    assert shown(conditions=[foreign]) == foreign
