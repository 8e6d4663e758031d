"""What a watch asks for, and what Kubernetes refuses."""

import pytest

from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import BadRequest, Invalid
from clusterspace.fleet.gateway.answers.cluster_feeds import without_options
from clusterspace.fleet.gateway.answers.watch_all import WatchOptions, read_options

INITIAL = (("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan"))


def options(*pairs: tuple[str, str]) -> WatchOptions:
    return read_options(Query(pairs))


def test_a_watch_without_a_version_begins_with_everything() -> None:
    assert not options().resumes
    assert not options(("resourceVersion", "0")).resumes
    assert not options().starts_now


def test_a_watch_with_a_version_goes_on_unless_it_wants_everything() -> None:
    assert options(("resourceVersion", "cs1.x")).resumes
    assert not options(("resourceVersion", "cs1.x"), *INITIAL).resumes


def test_a_watch_that_wants_no_initial_events_starts_now() -> None:
    none = (("sendInitialEvents", "false"), ("resourceVersionMatch", "NotOlderThan"))

    assert options(*none).starts_now
    assert options(("resourceVersion", "cs1.x"), *none).resumes


@pytest.mark.parametrize(
    "pairs",
    [
        (("sendInitialEvents", "true"),),
        (("sendInitialEvents", "true"), ("resourceVersionMatch", "Exact")),
        (("resourceVersionMatch", "NotOlderThan"),),
    ],
)
def test_combinations_that_make_no_sense_are_refused(pairs: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(Invalid):
        options(*pairs)


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", "9" * 20])
def test_a_time_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="timeoutSeconds"):
        options(("timeoutSeconds", text))


def test_clusters_get_selectors_and_nothing_of_how_we_watch() -> None:
    query = Query(
        (("watch", "1"), ("labelSelector", "a=b"), ("limit", "5"), ("future", "x"), *INITIAL)
    )

    assert without_options(query).pairs == (("labelSelector", "a=b"), ("future", "x"))
