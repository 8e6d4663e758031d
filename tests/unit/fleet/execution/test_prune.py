from tests.unit.fleet.execution.member_objects import WORK_ID, ordered

from clusterspace.apis import stamps
from clusterspace.fleet.execution.prune import dropped_manifests
from clusterspace.fleet.execution.takeover import without_stamps
from clusterspace.kube.objects import Object, annotations_of, labels_of
from clusterspace.testing.builders import config_map


def identifier(name: str, *, ordinal: int = 0) -> Object:
    where = {"namespace": "default", "name": name, "ordinal": ordinal, "resource": ""}
    return {"version": "v1", "kind": "ConfigMap", **where}


def work(manifests: list[Object], reported: list[Object]) -> Object:
    return {
        "metadata": {"name": "w", "labels": {stamps.WORK_ID: WORK_ID}},
        "spec": {"workload": {"manifests": manifests}},
        "status": {"manifestStatuses": [{"identifier": each} for each in reported]},
    }


def test_what_was_applied_and_is_not_listed_any_more_is_dropped() -> None:
    held = work([config_map("a")], [identifier("a"), identifier("b", ordinal=1)])

    dropped = dropped_manifests(held)

    assert [each["metadata"]["name"] for each in dropped] == ["b"]
    assert labels_of(dropped[0])[stamps.WORK_ID] == WORK_ID, "so that it is known as ours"


def test_a_manifest_that_only_moved_is_not_dropped() -> None:
    held = work([config_map("b"), config_map("a")], [identifier("a"), identifier("b", ordinal=1)])

    assert dropped_manifests(held) == []


def test_nothing_was_reported_so_nothing_is_dropped() -> None:
    assert dropped_manifests(work([], [])) == []


def test_an_object_that_stays_keeps_what_is_its_own() -> None:
    live = ordered(config_map("a", labels={"mine": "1"}, annotations={"theirs": "2"}))

    bare = without_stamps(live)

    assert labels_of(bare) == {"mine": "1"}
    assert annotations_of(bare) == {"theirs": "2"}
