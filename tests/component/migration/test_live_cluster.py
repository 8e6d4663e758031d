"""A made-up live cluster is what it says: by all tools, running, scaled, with sidecars."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.errors import CannotProve
from clusterspace.fleet.migration.ownership import OwnerKind, owner_of
from clusterspace.fleet.migration.proof import Verdict, compare
from clusterspace.fleet.migration.proof_documents import html_of
from clusterspace.fleet.migration.snapshots import (
    Selection,
    Snapshot,
    capture,
    decode,
    encode,
    require_namespaces,
)
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of, uid_of, with_value
from clusterspace.testing.builders import DEPLOYMENTS, PODS
from clusterspace.testing.live_cluster import LiveCluster, live_cluster
from clusterspace.testing.live_pods import sidecar_injector
from clusterspace.testing.stage import running_sim_member
from clusterspace.testing.steps import edit, until

CLOCK = SystemClock()


@dataclass
class Loaded:
    live: LiveCluster
    client: ClusterClient

    async def snapshot(self, *namespaces: str) -> Snapshot:
        return await capture(self.client, Selection(namespaces), CLOCK)

    async def pods(self) -> list[Object]:
        return await self.client.list_objects(ResourcePath(PODS))


@pytest.fixture
async def loaded(tmp_path: Path) -> AsyncIterator[Loaded]:
    live = live_cluster(220)
    async with (
        running_sim_member("west", tmp_path, nodes=2) as west,
        sidecar_injector() as injector,
    ):
        await live.load(west.client, injector)
        await live.until_running(west.client)
        yield Loaded(live, west.client)


def test_the_same_seed_makes_the_same_cluster() -> None:
    assert live_cluster(300).objects == live_cluster(300).objects
    assert live_cluster(300).objects != live_cluster(300, seed=2).objects
    for count in (200, 300, 5000):
        assert len(live_cluster(count).objects) == count


async def test_a_live_cluster_is_owned_scaled_injected_and_told_apart(loaded: Loaded) -> None:
    """One cluster for all of it: to load it costs more than to look at it."""
    live, client = loaded.live, loaded.client

    # Everything is whose it is said to be, by the hands that made it.
    contents = await live.contents(client)
    assert len(contents) == len(live.objects)
    for each in live.objects:
        assert owner_of(await client.get(each.path)).kind is each.tool, each.path
    assert {each.tool for each in live.objects} >= {
        OwnerKind.HELM,
        OwnerKind.ARGO_CD,
        OwnerKind.FLUX,
        OwnerKind.OPERATOR,
        OwnerKind.KUBECTL_APPLY,
        OwnerKind.KUSTOMIZE,
        OwnerKind.SERVER_SIDE_APPLY,
        OwnerKind.UNMANAGED,
    }

    # Pods run, some with a container that no template has, and autoscalers have scaled.
    pods = await loaded.pods()
    assert {find_at(each, "status", "phase") for each in pods} <= {"Running", "Succeeded"}
    names = Counter(c["name"] for each in pods for c in each["spec"]["containers"])
    assert names["sidecar"] > 0
    for each in live.of_kind("HorizontalPodAutoscaler"):
        target = await client.get(ResourcePath(DEPLOYMENTS, each.path.namespace, each.path.name))
        assert target["spec"]["replicas"] == each.body["spec"]["maxReplicas"]

    # Nothing happened between two snapshots, and the file has no secrets in it.
    before = await loaded.snapshot()
    assert before.unseen == ()
    assert before.taken_by
    assert before.counts()["Pod"] == len(pods)
    text = b"".join(encode(before))
    assert b"password" not in text.replace(b"PASSWORD", b"")
    before = decode(text)
    same = compare(before, await loaded.snapshot())
    assert same.is_unchanged, same.findings
    one = await loaded.snapshot("team-001")
    assert {each.namespace for each in one.identities} == {"team-001"}
    assert len(one.identities) == sum(each.namespace == "team-001" for each in before.identities)

    # A pod that is deleted is replaced, which is no scaling. What changes beside a pod template
    # touches no pod.
    autoscaled = live.of_kind("HorizontalPodAutoscaler")[0].path
    victim = next(each for each in pods if name_of(each).startswith(f"{autoscaled.name}-"))
    place = ResourcePath(PODS, namespace_of(victim), name_of(victim))
    await client.delete(place, DeleteOptions(uid_of(victim), grace_seconds=0))
    web = next(each for each in live.of_kind("Deployment") if each.path.name.startswith("web-"))
    await edit(client, web.path, lambda found: with_value(found, 1, "spec", "minReadySeconds"))
    await until(lambda: _is_back(loaded, len(pods), name_of(victim)))
    report = compare(before, await loaded.snapshot())

    gone = [each for each in report.findings if each.verdict is Verdict.GONE]
    assert [(each.kind, each.name) for each in gone] == [("Pod", name_of(victim))]
    new = [each for each in report.findings if each.verdict is Verdict.NEW]
    assert len(new) == 1
    assert "evicted, deleted or lost, and replaced" in new[0].why
    assert not report.is_unchanged
    assert name_of(victim) in html_of(report)

    with pytest.raises(CannotProve, match="there is no namespace nowhere"):
        await require_namespaces(client, Selection(("nowhere",)))


async def _is_back(loaded: Loaded, count: int, without: str) -> bool:
    pods = await loaded.pods()
    running = [each for each in pods if find_at(each, "status", "phase") != "Pending"]
    return len(running) == count and without not in map(name_of, pods)
