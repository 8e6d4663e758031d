"""How an object looks once its end has begun, and what ends at once."""

from typing import Any

import pytest
from tests.unit.apiserver.hub_subjects import CONFIG_MAPS, PODS, config_map, hub_state

from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.writing import is_finished, marked_for_removal
from clusterspace.kube.objects import Object
from clusterspace.testing.clocks import ManualClock


def marked(held: Object, *, pods: bool = False, **options: Any) -> Object:
    resource = PODS if pods else CONFIG_MAPS
    return marked_for_removal(hub_state(), resource, held, DeleteOptions(**options))


def pod(**spec: Any) -> Object:
    status = spec.pop("status", {})
    metadata = {"name": "p", "namespace": "default", "generation": 1}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {"containers": [], **spec},
        "status": status,
    }


def test_an_object_nothing_holds_is_finished_at_once() -> None:
    gone = marked(config_map())

    assert is_finished(gone)
    assert gone["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:20Z"


def test_a_finalizer_holds_it() -> None:
    assert not is_finished(marked(config_map(finalizers=["example.com/hold"])))


@pytest.mark.parametrize(
    ("present", "propagation", "left"),
    [
        ([], "Foreground", ["foregroundDeletion"]),
        ([], "Orphan", ["orphan"]),
        ([], "Background", None),
        (["orphan"], "Foreground", ["foregroundDeletion"]),
        (["foregroundDeletion"], "Orphan", ["orphan"]),
        (["foregroundDeletion", "x.io/a"], "Background", ["x.io/a"]),
        (["x.io/a", "orphan"], "", ["x.io/a", "orphan"]),
        (["x.io/a"], "Foreground", ["x.io/a", "foregroundDeletion"]),
    ],
)
def test_the_policy_decides_who_holds_it(
    present: list[str], propagation: str, left: list[str] | None
) -> None:
    held = config_map(finalizers=present) if present else config_map()

    assert marked(held, propagation=propagation)["metadata"].get("finalizers") == left


def test_only_the_first_mark_counts() -> None:
    held = config_map(finalizers=["x.io/a"], generation=3)
    clock = ManualClock()
    hub = hub_state(clock=clock)

    first = marked_for_removal(hub, CONFIG_MAPS, held, DeleteOptions())
    clock.jump(100)
    second = marked_for_removal(hub, CONFIG_MAPS, first, DeleteOptions())

    assert first["metadata"]["generation"] == 4, "whoever looks only at generations must notice"
    assert second == first


@pytest.mark.parametrize(
    ("held", "asked", "grace"),
    [
        (pod(nodeName="n"), None, 30),
        (pod(nodeName="n", terminationGracePeriodSeconds=5), None, 5),
        (pod(nodeName="n", terminationGracePeriodSeconds=0), None, 0),
        (pod(nodeName="n"), 7, 7),
        (pod(nodeName="n"), 0, 0),
        (pod(nodeName="n", status={"phase": "Succeeded"}), None, 0),
        (pod(), None, 0),
    ],
)
def test_a_pod_on_a_node_gets_its_time(held: Object, asked: int | None, grace: int) -> None:
    gone = marked(held, pods=True, grace_seconds=asked)

    assert gone["metadata"]["deletionGracePeriodSeconds"] == grace
    assert is_finished(gone) == (grace == 0)


def test_the_time_of_a_pod_can_be_cut_short_and_never_grows() -> None:
    waiting = marked(pod(nodeName="n"), pods=True)

    shorter = marked(waiting, pods=True, grace_seconds=1)
    longer = marked(shorter, pods=True, grace_seconds=60)

    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 1
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 1


def test_nothing_that_was_given_is_changed_in_place() -> None:
    held = config_map(finalizers=["x.io/a"])
    before = {**held, "metadata": {**held["metadata"], "finalizers": ["x.io/a"]}}

    marked(held, propagation="Foreground")

    assert held == before
