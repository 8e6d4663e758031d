import re
from enum import Enum

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clusterspace import __version__
from clusterspace.aio.queues import QueueObserver
from clusterspace.telemetry import metrics
from clusterspace.telemetry.metrics import QueueMetrics, ReconcileMetrics, RequestLabels


def value_of(sample: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(sample, labels) or 0.0


PODS = {"group": "", "version": "v1", "resource": "pods", "subresource": "", "scope": "namespace"}


def test_a_request_is_counted_by_verb_resource_and_code_and_timed():
    labels = RequestLabels(verb="list", group="", version="v1", resource="pods", scope="namespace")
    counted = value_of("apiserver_request_total", verb="list", code="200", **PODS)
    timed = value_of("apiserver_request_duration_seconds_count", verb="list", **PODS)

    metrics.request_finished(labels, 200, 0.02)

    assert value_of("apiserver_request_total", verb="list", code="200", **PODS) == counted + 1
    assert value_of("apiserver_request_duration_seconds_count", verb="list", **PODS) == timed + 1


def test_a_watch_is_counted_and_not_timed():
    labels = RequestLabels(verb="watch", group="", version="v1", resource="pods", scope="namespace")

    metrics.request_finished(labels, 200, 3600)

    assert value_of("apiserver_request_total", verb="watch", code="200", **PODS) >= 1
    assert value_of("apiserver_request_duration_seconds_count", verb="watch", **PODS) == 0


def test_made_up_verbs_and_codes_make_no_new_series():
    metrics.request_finished(RequestLabels(verb="made up"), 999, 0)
    before = len(metrics.render().splitlines())

    for number in range(50):
        metrics.request_finished(RequestLabels(verb=f"made up {number}"), 1000 + number, 0)

    assert len(metrics.render().splitlines()) == before


def test_watchers_go_up_and_down():
    labels = {"group": "apps", "version": "v1", "resource": "deployments"}
    before = value_of("apiserver_longrunning_requests", **labels)

    metrics.watch_started("apps", "v1", "deployments")
    metrics.watch_started("apps", "v1", "deployments")
    metrics.watch_ended("apps", "v1", "deployments")

    assert value_of("apiserver_longrunning_requests", **labels) == before + 1


def test_an_evicted_watcher_is_counted():
    before = value_of("clusterspace_watchers_evicted_total")
    metrics.watcher_evicted()

    assert value_of("clusterspace_watchers_evicted_total") == before + 1


def test_a_commit_is_counted_with_its_batch_and_its_wait_for_the_disk():
    commits = value_of("clusterspace_store_commits_total")
    writes = value_of("clusterspace_store_batch_size_sum")
    waits = value_of("clusterspace_store_fsync_seconds_count")

    metrics.commit_finished(batch_size=7, fsync_seconds=0.004)

    assert value_of("clusterspace_store_commits_total") == commits + 1
    assert value_of("clusterspace_store_batch_size_sum") == writes + 7
    assert value_of("clusterspace_store_fsync_seconds_count") == waits + 1


def tell(observer: QueueObserver) -> None:
    """Do what a queue does to its observer."""
    observer.depth_changed(4)
    observer.taken(0.5)
    observer.finished(2)
    observer.retried()


def test_a_queue_is_measured_under_its_name():
    tell(QueueMetrics("only-here"))

    assert value_of("workqueue_depth", name="only-here") == 4
    assert value_of("workqueue_queue_duration_seconds_sum", name="only-here") == 0.5
    assert value_of("workqueue_work_duration_seconds_sum", name="only-here") == 2
    assert value_of("workqueue_retries_total", name="only-here") == 1


def test_attempts_of_a_controller_are_counted_by_how_they_ended():
    class Ended(Enum):
        DONE = "done"

    ReconcileMetrics("only-here").attempted(Ended.DONE, 0.2)

    labels = {"controller": "only-here"}
    assert value_of("controller_runtime_reconcile_total", result="done", **labels) == 1
    assert value_of("controller_runtime_reconcile_time_seconds_sum", **labels) == 0.2


def test_the_page_can_be_read_by_prometheus_and_names_the_build():
    families = {
        family.name: family for family in text_string_to_metric_families(metrics.render().decode())
    }

    (sample,) = families["clusterspace_build_info"].samples
    assert sample.labels["version"] == __version__
    assert "text/plain" in metrics.CONTENT_TYPE
    assert not [name for name in families if name.endswith("_created")]


@pytest.mark.parametrize("family", list(metrics.REGISTRY.collect()), ids=lambda each: each.name)
def test_every_metric_is_named_and_explained_as_prometheus_asks(family):
    assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
    assert family.documentation
    assert not family.name.endswith(("_count", "_sum", "_bucket"))
