import json
from typing import Any

import pytest
from tests.unit.fleet.propagation.works.work_objects import binding, work

from clusterspace.controllers.controller import Request, more_than_status_changed
from clusterspace.controllers.informers import Update
from clusterspace.fleet.propagation.scheduler.filters import has_new_traits
from clusterspace.fleet.propagation.statuses import binding_of_reporting
from clusterspace.fleet.propagation.works.controller import (
    binding_of_strayed,
    by_cluster,
    by_template_kind,
)
from clusterspace.kube.objects import Object, with_metadata, with_value

WEB = Request("web-deployment", "default")


def update(before: Object | None, after: Object | None) -> Update:
    def raw(held: Object | None) -> bytes | None:
        return None if held is None else json.dumps(held).encode()

    return Update("default/web-deployment", raw(before), raw(after))


def with_status(held: Object) -> Object:
    return {**with_metadata(held, resourceVersion="99"), "status": {"some": "news"}}


def leaving(held: Object) -> Object:
    return with_metadata(held, deletionTimestamp="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("before", "after", "is_looked_at"),
    [
        (None, binding("north"), True),
        (binding("north"), None, True),
        (binding("north"), with_status(binding("north")), False),
        (binding("north"), binding("south"), True),
        (binding("north"), leaving(binding("north")), True),
        (binding("north"), with_metadata(binding("north"), labels={"new": "claim"}), True),
    ],
)
def test_a_binding_is_looked_at_again_unless_only_its_status_is_new(
    before: Object | None, after: Object | None, is_looked_at: bool
) -> None:
    assert more_than_status_changed(update(before, after)) is is_looked_at


@pytest.mark.parametrize(
    ("before", "after", "strays", "reports"),
    [
        (None, work("north"), False, True),
        (work("north"), None, True, True),
        (work("north"), with_status(work("north")), False, True),
        (work("north"), with_value(work("north"), True, "spec", "suspendDispatching"), True, False),
        (work("north"), leaving(work("north")), True, True),
        (work("north"), work("north", resourceVersion="10"), False, False),
    ],
)
def test_a_work_wakes_the_controllers_it_means_something_to(
    before: Object | None, after: Object | None, strays: bool, reports: bool
) -> None:
    assert list(binding_of_strayed(update(before, after))) == ([WEB] if strays else [])
    assert list(binding_of_reporting(update(before, after))) == ([WEB] if reports else [])


def test_a_work_of_no_binding_wakes_nobody() -> None:
    free = with_metadata(work("north"), annotations=None)

    assert list(binding_of_strayed(update(free, None))) == []
    assert list(binding_of_reporting(update(None, free))) == []


def cluster(**parts: Any) -> Object:
    return {"metadata": {"name": "north", "labels": parts.pop("labels", {})}, "spec": parts}


@pytest.mark.parametrize(
    ("before", "after", "is_new"),
    [
        (None, cluster(), True),
        (cluster(), cluster(), False),
        (cluster(), {**cluster(), "status": {"some": "news"}}, False),
        (cluster(), cluster(labels={"tier": "gold"}), True),
        (cluster(), cluster(region="r"), True),
        (cluster(zones=["a"]), cluster(zones=["b"]), True),
        (cluster(), None, False),
    ],
)
def test_a_cluster_matters_when_overrides_could_tell_the_difference(
    before: Object | None, after: Object | None, is_new: bool
) -> None:
    assert has_new_traits(update(before, after)) is is_new


def test_bindings_are_found_by_their_clusters_and_by_the_kind_of_their_template() -> None:
    tasks = [{"fromCluster": "west", "purgeMode": "Gracefully"}]
    bound = binding("north", gracefulEvictionTasks=tasks)

    assert set(by_cluster(bound)) == {"north", "west"}
    assert list(by_template_kind(bound)) == ["apps/v1/Deployment"]
