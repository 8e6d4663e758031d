"""Several processes serve one address: whatever one of them was told, all of them know."""

import json
import os
import re
import signal
import ssl
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.conformance.fleets import MEMBERS, RunningFleet, running_fleet
from tests.conformance.hubs import ADMIN_TOKEN, PATIENCE, Answer
from tests.conformance.kubectl_stage import LABELS, deployment

from clusterspace.roots.installation import Installation
from clusterspace.testing.programs import Program

WORKERS = 2
BEARER = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RUN = {
    "Kubectl-Session": "3f6f4c1e-0000-4000-8000-000000000001",
    "Kubectl-Command": "kubectl logs",
    "User-Agent": "kubectl/v1.35.0",
}


class Way:
    """One connection to the address, and thereby to one of its workers."""

    def __init__(self, connection: HTTPSConnection) -> None:
        self.connection = connection

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return self.send(method, path, body, {**BEARER, **headers})

    def send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        sent = None if body is None else json.dumps(body)
        self.connection.request(method, path, sent, {"Content-Type": "application/json", **headers})
        response = self.connection.getresponse()
        answered = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, answered, response.read())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningFleet]:
    # `east` is dialled, and `west` is asked through its agent.
    directory = tmp_path_factory.mktemp("fleet")
    several = ("--workers", str(WORKERS), "--last-state", "0")
    with running_fleet(directory, *several, pull=("west",)) as running:
        for member in running.members.values():
            member.create("/apis/apps/v1/namespaces/default/deployments", deployment(1))
        yield running


@pytest.fixture
def ways(fleet: RunningFleet) -> Generator[list[Way]]:
    """Connections, of which each worker has some: they are given to them in turns."""
    opened = [fleet.server.connections.open() for _ in range(2 * WORKERS)]
    try:
        yield [Way(each) for each in opened]
    finally:
        for each in opened:
            each.close()


def names_in(answer: Answer) -> set[str]:
    assert answer.status == 200, answer.body
    return {each["metadata"]["name"] for each in answer.json["items"]}


def clusters_in(answer: Answer) -> set[str]:
    return {name.rpartition(".clusterspace.")[2] for name in names_in(answer)}


def until_all_see(ways: list[Way], clusters: set[str]) -> None:
    """Wait until every worker has every cluster: each has a tunnel of its own."""
    deadline = time.monotonic() + PATIENCE
    while any(clusters_in(way.ask("GET", PODS)) != clusters for way in ways):
        assert time.monotonic() < deadline, "not every worker reaches every cluster"
        time.sleep(0.2)


def test_each_worker_shows_all_clusters_those_behind_agents_too(ways: list[Way]) -> None:
    until_all_see(ways, set(MEMBERS))


def test_a_command_goes_on_at_its_cluster_by_way_of_any_worker(ways: list[Way]) -> None:
    until_all_see(ways, set(MEMBERS))
    for number, first in enumerate(ways):
        run = {**RUN, "Kubectl-Session": f"session-{number}"}
        path = "/apis/apps/v1/namespaces/default/deployments/web.clusterspace.west"
        assert first.ask("GET", path, **run).status == 200
        selected = f"{PODS}?labelSelector=app%3D{LABELS['app']}"

        shown = [clusters_in(way.ask("GET", selected, **run)) for way in ways]

        assert shown == [{"west"}] * len(ways)


def test_a_write_by_way_of_one_worker_is_recognised_in_a_watch_of_another(
    ways: list[Way], fleet: RunningFleet
) -> None:
    listed = ways[0].ask("GET", CONFIG_MAPS).json["metadata"]["resourceVersion"]
    query = f"watch=true&allowWatchBookmarks=true&resourceVersion={listed}"
    watches = [fleet.server.watch(f"{CONFIG_MAPS}?{query}") for _ in range(WORKERS)]
    for number, way in enumerate(ways):
        name = f"written-{number}.clusterspace.west"
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        answer = way.ask("POST", CONFIG_MAPS, made)
        assert answer.status == 201, answer.body

        for watch in watches:
            event: dict[str, Any] = {}
            while event.get("object", {}).get("metadata", {}).get("name") != name:
                event = watch.next()
            version = event["object"]["metadata"]["resourceVersion"]
            assert version == answer.json["metadata"]["resourceVersion"]
    for watch in watches:
        watch.__exit__()


def test_a_session_of_the_page_is_the_same_at_every_worker(
    ways: list[Way], fleet: RunningFleet
) -> None:
    own_page = {"Origin": fleet.server.url.rstrip("/"), "Sec-Fetch-Site": "same-origin"}

    def states(cookie: str) -> list[Any]:
        asked = [way.send("GET", "/ui/session", None, {**own_page, "Cookie": cookie})
                 for way in ways]  # fmt: skip
        return [each.json["readOnly"] if each.status == 200 else each.status for each in asked]

    opened = ways[0].ask("POST", "/ui/session", **own_page)
    assert opened.status == 200, opened.body
    cookie = opened.headers["set-cookie"].partition(";")[0]
    assert states(cookie) == [True] * len(ways)

    with_cookie = {**own_page, "Cookie": cookie}
    changed = ways[1].send("PUT", "/ui/session", {"readOnly": False}, with_cookie)
    assert changed.status == 200, changed.body
    assert states(cookie) == [False] * len(ways)

    assert ways[2].send("DELETE", "/ui/session", None, with_cookie).status == 200
    assert states(cookie) == [401] * len(ways)


def test_a_code_logs_in_once_whichever_workers_are_asked_at_once(ways: list[Way]) -> None:
    for _ in range(5):
        code = ways[0].ask("POST", "/ui/code").json["code"]

        def log_in(way: Way, code: str = code) -> int:
            headers = {"Authorization": f"Clusterspace-Code {code}"}
            return way.send("POST", "/ui/session", None, headers).status

        with ThreadPoolExecutor() as pool:
            assert sorted(pool.map(log_in, ways)) == [200, *[401] * (len(ways) - 1)]


def test_metrics_are_those_of_all_workers(ways: list[Way]) -> None:
    text = ways[0].ask("GET", "/metrics").body.decode()

    served = re.findall(r'^apiserver_request_total\{worker="(\d)"', text, re.MULTILINE)
    assert set(served) == {"1", "2"}
    assert text.count("# TYPE apiserver_request_total ") == 1


def test_a_worker_that_dies_is_replaced_by_one_that_knows_what_the_others_do(
    fleet: RunningFleet, ways: list[Way]
) -> None:
    own_page = {"Origin": fleet.server.url.rstrip("/"), "Sec-Fetch-Site": "same-origin"}
    opened = ways[0].ask("POST", "/ui/session", **own_page)
    cookie = opened.headers["set-cookie"].partition(";")[0]

    def started() -> dict[str, str]:
        page = fleet.server.ask("GET", "/metrics").body.decode()
        found = r'^process_start_time_seconds\{worker="(\d)"\} (\S+)'
        return dict(re.findall(found, page, re.MULTILINE))

    before = started()
    os.kill(workers_of(fleet)[0], signal.SIGKILL)

    deadline = time.monotonic() + PATIENCE
    while len(after := started()) < WORKERS or after == before:
        assert time.monotonic() < deadline, fleet.server.last_words()
        time.sleep(0.1)
    fresh = [Way(fleet.server.connections.open()) for _ in range(2 * WORKERS)]
    asked = [way.send("GET", "/ui/session", None, {**own_page, "Cookie": cookie}) for way in fresh]
    assert [each.status for each in asked] == [200] * len(fresh)
    until_all_see(fresh, set(MEMBERS))
    for way in fresh:
        way.connection.close()


@pytest.mark.slow  # a sibling has ten seconds to hear
def test_a_worker_that_does_not_hear_is_ended_and_others_go_on(
    fleet: RunningFleet, ways: list[Way]
) -> None:
    until_all_see(ways, set(MEMBERS))
    frozen, _ = workers_of(fleet)
    os.kill(frozen, signal.SIGSTOP)

    def write(way: Way) -> int:
        name = f"heard-{ways.index(way)}.clusterspace.east"
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        try:
            return way.ask("POST", CONFIG_MAPS, made).status
        except OSError:
            return 0  # its worker was ended

    with ThreadPoolExecutor() as pool:
        statuses = list(pool.map(write, ways))

    assert set(statuses) <= {0, 201}
    assert 201 in statuses
    assert frozen not in workers_of(fleet)


def test_an_authority_is_replaced_under_every_worker_while_its_clients_go_on(
    fleet: RunningFleet, ways: list[Way]
) -> None:
    until_all_see(ways, set(MEMBERS))
    installation = Installation(fleet.server.log.parent / "data")
    old = installation.authority_file.read_text()
    words = ["certs", "rotate", "--data-dir", str(fleet.server.log.parent / "data")]
    words += ["--overlap", "1", "--unused-for", "1", "--force"]

    log = fleet.server.log.with_name("rotate.log")
    assert Program("clusterspace", words, log=log).wait() == 0, log.read_text()

    new = installation.authority_file.read_text()
    assert old.strip() not in new
    # Connections from before go on. Of new ones each worker has some, and shows who trusts the new
    # authority alone a certificate of that one.
    until_all_see(ways, set(MEMBERS))
    place = urlsplit(fleet.server.url)
    trusting = ssl.create_default_context(cadata=new)
    for _ in range(2 * WORKERS):
        connection = HTTPSConnection(str(place.hostname), place.port, context=trusting)
        with closing(connection):
            assert clusters_in(Way(connection).ask("GET", PODS)) == set(MEMBERS)


def workers_of(fleet: RunningFleet) -> list[int]:
    """Return the processes of the workers."""
    home, found = str(fleet.server.log.parent).encode(), list[int]()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            is_worker = b"CLUSTERSPACE_FLEET_WORKER=" in (entry / "environ").read_bytes()
            if is_worker and home in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return sorted(found)
