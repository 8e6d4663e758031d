from typing import Any

from tests.unit.fleet.execution.member_objects import ordered

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import PARENT
from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.events import EventRecorder
from clusterspace.fleet.execution.report import ManifestResult, WorkReporter, next_status
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map

MANIFEST = ordered(config_map("a"))


def work(status: Object | None = None, **spec: Any) -> Object:
    body: Object = {"metadata": {"name": "w"}, "spec": spec}
    return {**body, "status": status} if status else body


def applied(status: Object) -> Object:
    return find_condition(status["conditions"], "Applied") or {}


def test_success_is_told_in_karmadas_words() -> None:
    status = next_status(work(), [ManifestResult(MANIFEST, live=MANIFEST)], 0)

    assert [each["type"] for each in status["conditions"]] == ["Dispatching", "Applied"]
    assert applied(status)["reason"] == "AppliedSuccessful"
    assert status["manifestStatuses"][0]["health"] == "Healthy"


def test_what_was_said_once_is_not_said_again() -> None:
    first = next_status(work(), [ManifestResult(MANIFEST, live=MANIFEST)], 0)

    assert next_status(work(first), [ManifestResult(MANIFEST, live=MANIFEST)], 99) == first


def test_a_problem_is_told_with_how_many_manifests_are_in_force() -> None:
    results = [
        ManifestResult(MANIFEST, live=MANIFEST),
        ManifestResult(MANIFEST, problem="it is in the way"),
    ]

    status = next_status(work(), results, 0)

    assert applied(status)["status"] == "False"
    assert applied(status)["message"] == ("Failed to apply all manifests (1/2): it is in the way")
    assert len(status["manifestStatuses"]) == 1


def test_an_object_that_was_made_again_is_told_of() -> None:
    before = next_status(work(), [ManifestResult(MANIFEST, live=MANIFEST)], 0)

    status = next_status(
        work(before), [ManifestResult(MANIFEST, live=MANIFEST, is_recreated=True)], 5
    )

    assert applied(status)["reason"] == "ReCreateSuccessful"
    assert applied(status)["lastTransitionTime"] == applied(before)["lastTransitionTime"]


def test_a_suspended_work_says_nothing_new_about_being_applied() -> None:
    status = next_status(work(suspendDispatching=True), [ManifestResult(MANIFEST)], 0)

    told = find_condition(status["conditions"], "Dispatching") or {}
    assert (told["status"], told["reason"]) == ("False", "SuspendDispatching")
    assert applied(status) == {}
    assert "manifestStatuses" not in status


def test_a_placements_work_says_which_of_its_states_it_tells_of() -> None:
    def placed(generation: int, status: Object | None = None) -> Object:
        metadata = {"name": "w", "labels": {PARENT: "crp"}, "generation": generation}
        return {**work(status), "metadata": metadata}

    first = next_status(placed(1), [ManifestResult(MANIFEST, live=MANIFEST)], 0)
    second = next_status(placed(2, first), [ManifestResult(MANIFEST, live=MANIFEST)], 5)
    third = next_status(placed(3, second), [ManifestResult(MANIFEST, problem="no")], 9)

    told = [applied(each)["observedGeneration"] for each in (first, second, third)]
    assert told == [1, 2, 3]
    assert applied(first)["lastTransitionTime"] == applied(second)["lastTransitionTime"]


WORK = {
    "apiVersion": "work.karmada.io/v1alpha1",
    "kind": "Work",
    "metadata": {"name": "w", "namespace": "karmada-es-west", "uid": "1"},
}
STAMPED = config_map("conf", annotations={stamps.TEMPLATE_UID: "2"})


class Hub:
    """Takes events, and remembers what they are about."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    async def create(self, _place: ResourcePath, event: Object, _options: object = None) -> Object:
        self.told.append((event["involvedObject"]["kind"], event["reason"]))
        return event


NOBODY: Any = None
"""Whoever interprets is not asked: nothing is written."""


async def hear(*, records_on_templates: bool) -> list[tuple[str, str]]:
    hub = Hub()
    clock = SystemClock()
    events = EventRecorder(hub, component="test", clock=clock)  # pyright: ignore[reportArgumentType]
    reporter = WorkReporter(
        hub,  # pyright: ignore[reportArgumentType]
        events,
        clock,
        "west",
        NOBODY,
        records_on_templates=records_on_templates,
    )
    reporter.record_results(WORK, [ManifestResult(STAMPED, problem="no room")])
    reporter.record_drift(WORK, STAMPED, "data.a")
    await events.flush()
    return sorted(hub.told)


async def test_work_and_template_hear_of_trouble_and_drift() -> None:
    assert await hear(records_on_templates=True) == [
        ("ConfigMap", "DriftRepaired"),
        ("ConfigMap", "SyncFailed"),
        ("Work", "DriftRepaired"),
        ("Work", "SyncFailed"),
    ]


async def test_an_agent_tells_the_work_alone() -> None:
    assert await hear(records_on_templates=False) == [
        ("Work", "DriftRepaired"),
        ("Work", "SyncFailed"),
    ]
