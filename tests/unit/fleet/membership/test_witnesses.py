"""What a second place sees of Push clusters, and when it says so."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from clusterspace.apis.witnesses import WitnessReport, read_report
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import ClusterUnreachable, Conflict, CredentialsUnusable
from clusterspace.fleet.membership.witnesses import LOOK_SECONDS, RENEW_SECONDS, Witness
from clusterspace.kube.objects import Object, name_of, with_metadata
from clusterspace.testing.clocks import ManualClock


def cluster(name: str, ready: str, mode: str = "Push") -> Object:
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {"syncMode": mode},
        "status": {"conditions": [{"type": "Ready", "status": ready}] if ready else []},
    }


@dataclass
class Place:
    """A witness, the clusters as it knows them, and what each answers it."""

    clusters: list[Object]
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    leases: dict[str, Object] = field(default_factory=dict[str, Object])
    writes: int = 0
    fails: Exception | None = None

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.witness = Witness(
            self,
            "me",
            "here",
            lambda: self.clusters,
            self.reach,
            clock=self.clock,
            random=Random(1),
        )

    async def reach(self, cluster: Object) -> Any:
        answer = self.answers.get(name_of(cluster), 200)
        if isinstance(answer, CredentialsUnusable):
            raise answer
        return None if answer is None else Answering(name_of(cluster), answer)

    async def find(self, place: ResourcePath) -> Object | None:
        return self.leases.get(place.key)

    async def create(self, place: ResourcePath, kube_object: Object) -> Object:
        return self._keep(kube_object)

    async def update(self, place: ResourcePath, kube_object: Object) -> Object:
        return self._keep(kube_object)

    def _keep(self, lease: Object) -> Object:
        if self.fails is not None:
            failure, self.fails = self.fails, None
            raise failure
        self.writes += 1
        key = f"{lease['metadata']['namespace']}/{name_of(lease)}"
        self.leases[key] = with_metadata(lease, resourceVersion=str(self.writes))
        return self.leases[key]

    async def look(self, times: int = 1) -> WitnessReport:
        for _ in range(times):
            await self.witness.look()
            self.clock.freeze(LOOK_SECONDS)
        return self.said

    @property
    def said(self) -> WitnessReport:
        (lease,) = self.leases.values()
        found = read_report(lease)
        assert found is not None
        return found


@dataclass
class Answering:
    """The connection to a cluster: a status, or what is raised instead."""

    cluster: str
    answer: Any

    async def exchange(self, request: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        status = self.answer(request.path) if callable(self.answer) else self.answer
        return type("Answer", (), {"status": status})


SILENT = ClusterUnreachable("west", "no route", was_sent=False)
WEST = "uid-of-west"


def fleet(west: str = "False") -> list[Object]:
    return [cluster("west", west), cluster("east", "True"), cluster("pull", "True", "Pull")]


async def test_a_cluster_is_away_when_two_looks_in_a_row_fail() -> None:
    place = Place(fleet(), {"west": SILENT})
    assert (await place.look()).away == frozenset()
    assert (await place.look()).away == {WEST}
    assert (place.said.others_heard, place.said.others_asked) == (2, 2)

    place.answers = {}
    assert (await place.look()).away == frozenset()
    assert place.said.answering == {WEST}


async def test_an_answer_in_between_begins_anew() -> None:
    place = Place(fleet(), {"west": SILENT})
    await place.look()
    place.answers = {}
    await place.look()
    place.answers = {"west": SILENT}
    assert (await place.look()).away == frozenset()


async def test_refused_credentials_are_an_answer_and_failing_health_is_none() -> None:
    for status, is_away in ((401, False), (403, False), (429, False), (500, True), (503, True)):
        place = Place(fleet(), {"west": status})
        said = await place.look(2)
        assert (WEST in said.away, WEST in said.answering) == (is_away, not is_away), status


async def test_a_server_without_readyz_is_asked_for_healthz() -> None:
    place = Place(fleet(), {"west": lambda path: 404 if path == "/readyz" else 500})
    assert (await place.look(2)).away == {WEST}


async def test_of_a_cluster_that_cannot_be_asked_nothing_is_said() -> None:
    for answer in (None, CredentialsUnusable("west", "there is no Secret")):
        place = Place(fleet(), {"west": answer, "pull": None})
        said = await place.look(3)
        assert (said.away, said.answering) == (frozenset(), frozenset())
        assert (said.others_heard, said.others_asked) == (1, 1)


async def test_who_hears_nobody_says_so() -> None:
    place = Place(fleet(), dict.fromkeys(("west", "east", "pull"), SILENT))
    said = await place.look(2)
    assert said.away == {WEST}
    assert not said.is_credible


async def test_a_fleet_that_is_well_has_it_registered_once_and_nothing_more_written() -> None:
    place = Place(fleet("True"))
    await place.look(20)
    assert place.writes == 1
    assert place.said == WitnessReport("me", "here")


async def test_without_push_clusters_nothing_is_written() -> None:
    place = Place([cluster("pull", "Unknown", "Pull")])
    await place.witness.look()
    assert place.leases == {}


async def test_what_is_said_is_renewed_and_taken_back_when_the_cluster_is_ready() -> None:
    place = Place(fleet(), {"west": SILENT})
    await place.look(2)
    before = place.writes
    await place.look(int(RENEW_SECONDS / LOOK_SECONDS))
    assert place.writes == before + 1

    place.clusters = fleet("True")
    assert (await place.look()).away == frozenset()
    before = place.writes
    await place.look(20)
    assert place.writes == before


async def test_a_write_that_is_refused_is_made_again() -> None:
    place = Place(fleet(), {"west": SILENT})
    await place.look(1)
    place.fails = Conflict("another write came late")
    assert (await place.look()).away == frozenset()
    assert (await place.look()).away == {WEST}
