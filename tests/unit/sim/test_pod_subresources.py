"""The log of a simulated container."""

import pytest
from tests.unit.sim.workload_objects import pod

from clusterspace.apiserver.http.request_info import Query
from clusterspace.errors import BadRequest
from clusterspace.kube.objects import Object
from clusterspace.sim import pods
from clusterspace.sim.pod_subresources import (
    KEPT_LINES,
    ContainerLog,
    LogOptions,
    choose_container,
)

NOW = 1_700_000_000.0


def running() -> Object:
    return pods.started(pod(node="a"), "10.0.0.2", "172.0.0.1", NOW)


def shown(log: ContainerLog, at: float, **query: str) -> list[bytes]:
    request = LogOptions.read(Query(tuple(query.items())))
    lines = log.lines(log.first_line(request, at), log.count(at), with_time=request.timestamps)
    return list(lines)


def test_a_log_grows_by_a_line_a_second_and_old_lines_stay_as_they_were() -> None:
    log = ContainerLog.of(running(), "web")

    early, late = shown(log, NOW + 3), shown(log, NOW + 10)

    assert (len(early), len(late)) == (4, 11)
    assert late[:4] == early


def test_the_end_of_a_log_can_be_asked_for_by_lines_and_by_age() -> None:
    log = ContainerLog.of(running(), "web")
    everything = shown(log, NOW + 100)

    assert shown(log, NOW + 100, tailLines="5") == everything[-5:]
    assert shown(log, NOW + 100, sinceSeconds="10") == everything[-11:]
    assert shown(log, NOW + 100, tailLines="0") == []


def test_timestamps_are_put_in_front_when_asked_for() -> None:
    log = ContainerLog.of(running(), "web")

    (first,) = shown(log, NOW, timestamps="true")

    assert first.startswith(b"2023-11-14T22:13:20.000000Z 000000 ")


def test_a_container_that_has_ended_says_no_more() -> None:
    ended = pods.finished(running(), 0, NOW + 5)

    assert len(shown(ContainerLog.of(ended, "web"), NOW + 1000)) == 6


def test_only_the_last_lines_of_an_old_log_are_kept() -> None:
    log = ContainerLog.of(running(), "web")

    assert len(shown(log, NOW + 10 * KEPT_LINES)) == KEPT_LINES


def test_a_container_that_has_not_started_has_no_log() -> None:
    with pytest.raises(BadRequest, match="is waiting to start: ContainerCreating"):
        ContainerLog.of(pod(), "web")


def test_a_pod_of_several_containers_asks_which_is_meant() -> None:
    held = pod()
    held["spec"]["containers"].append({"name": "side", "image": "side:1"})

    assert choose_container(held, "side") == "side"
    with pytest.raises(BadRequest, match=r"choose one of: \[web side\]"):
        choose_container(held, "")
    with pytest.raises(BadRequest, match="container nope is not valid for pod p"):
        choose_container(held, "nope")


@pytest.mark.parametrize(
    ("name", "text"), [("tailLines", "-1"), ("limitBytes", "0"), ("sinceTime", "yesterday")]
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(BadRequest, match=name):
        LogOptions.read(Query(((name, text),)))
