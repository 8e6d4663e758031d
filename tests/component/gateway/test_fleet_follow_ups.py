"""`kubectl logs deploy/web.clusterspace.west`: the pods of that Deployment, and of no other."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import ROOT, Heard, Site, fleet_site, without_federation

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.testing.builders import DEPLOYMENTS, PODS, deployment, pod

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEPLOYS = "/apis/apps/v1/namespaces/default/deployments"
MINE = "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb"
TYPED = ("Accept", "application/vnd.kubernetes.protobuf,application/json")
AGENT = ("User-Agent", "kubectl/v1.31.0 (linux/amd64)")
JSON = ("Accept", "application/json, */*")
EVERYWHERE = ["web.clusterspace.east", "web.clusterspace.west"]


def logs(session: str) -> tuple[tuple[str, str], ...]:
    return (("Kubectl-Command", "kubectl logs"), ("Kubectl-Session", session))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """A fleet with the same Deployment and the same pod in two clusters and on the hub."""
    async with fleet_site(tmp_path_factory.mktemp("fleet")) as it:
        for side in (it.hub, *it.members.values()):
            await side.client.create(ResourcePath(DEPLOYMENTS, "default"), deployment("web"))
        for side in it.members.values():
            await side.client.create(ResourcePath(PODS, "default"), labelled(pod("web"), app="web"))
        yield it


def labelled(made: Any, **labels: str) -> Any:
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


async def pods_after(
    site: Site, name: str, *headers: tuple[str, str], list_headers: Any = None, token: str = ROOT
) -> list[str]:
    """Get a Deployment, then list pods by its selector; return their names."""
    got = await site.ask("GET", f"{DEPLOYS}/{name}", headers=headers)
    assert got.code == 200, got.body
    listing = [each for each in headers if each is not JSON]
    listing = listing if list_headers is None else list_headers
    listed: Heard = await site.ask("GET", MINE, headers=(*listing, TYPED), token=token)
    assert listed.code == 200, listed.body
    return listed.names


@pytest.mark.parametrize("cluster", ["east", "west"])
async def test_the_pods_of_a_named_deployment_are_those_of_its_cluster(site: Site, cluster: str):
    found = [
        await pods_after(site, f"web.clusterspace.{cluster}", *logs(f"{cluster}-{number}"))
        for number in range(50)
    ]

    assert found == [[f"web.clusterspace.{cluster}"]] * 50


async def test_commands_at_the_same_time_do_not_disturb_each_other(site: Site):
    async def run(number: int) -> bool:
        cluster = ("east", "west")[number % 2]
        found = await pods_after(site, f"web.clusterspace.{cluster}", *logs(f"at-once-{number}"))
        return found == [f"web.clusterspace.{cluster}"]

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(run(number)) for number in range(50)]

    assert all(each.result() for each in runs)


async def test_a_template_s_pods_are_wherever_they_run(site: Site):
    assert await pods_after(site, "web", *logs("template")) == EVERYWHERE


async def test_the_pods_of_a_job_template_are_those_of_its_copies(site: Site):
    """A Job selects its pods by its own UID, and each copy has another one than the template."""
    jobs = "/apis/batch/v1/namespaces/kube-public/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    job = {"metadata": {"name": "once"}, "spec": {"template": template}}
    assert (await site.ask("POST", jobs, job)).code == 201
    for cluster, side in site.members.items():
        own = {
            "batch.kubernetes.io/job-name": "once",
            "batch.kubernetes.io/controller-uid": cluster,
        }
        made = {**pod("once-x"), "metadata": {"name": "once-x", "labels": own}}
        await side.client.create(ResourcePath(PODS, "kube-public"), made)
    await hang_up(site)
    for headers in (logs("job"), (AGENT, TYPED)):
        got = await site.ask("GET", f"{jobs}/once", headers=headers)
        labels = got.body["spec"]["selector"]["matchLabels"]
        selector = quote(",".join(f"{key}={value}" for key, value in labels.items()))
        path = f"/api/v1/namespaces/kube-public/pods?labelSelector={selector}"

        followed = await site.ask("GET", path, headers=(*headers, TYPED))
        listed = await site.ask("GET", path)

        assert followed.names == [f"once-x.clusterspace.{each}" for each in site.members]
        assert listed.names == []


async def test_another_session_another_user_or_another_command_sees_every_cluster(site: Site):
    name, mine = "web.clusterspace.west", logs("mine")
    getting = (("Kubectl-Command", "kubectl get"), ("Kubectl-Session", "getting"))

    others = await pods_after(site, name, *mine, list_headers=logs("other"))
    shown = await pods_after(site, name, *getting)
    plain = await pods_after(site, name, list_headers=())

    assert others == shown == plain == EVERYWHERE


async def test_other_pods_of_the_same_session_are_of_every_cluster(site: Site):
    await pods_after(site, "web.clusterspace.west", *logs("wide"))

    async def names_of(query: str) -> list[str]:
        path = f"/api/v1/namespaces/default/pods?{query}"
        return (await site.ask("GET", path, headers=(*logs("wide"), TYPED))).names

    assert await names_of("") == EVERYWHERE
    assert await names_of(f"labelSelector={quote('app in (web,api)')}") == EVERYWHERE
    assert await names_of("labelSelector=app%3Dweb&limit=500") == EVERYWHERE


async def hang_up(site: Site) -> None:
    """Have the next request open a connection."""
    held = site.connections.pop((ROOT, site.url), None)
    if held is not None:
        await held.close()


async def test_without_a_session_kubectl_is_known_by_its_connection(site: Site):
    for number in range(50):
        cluster = ("east", "west")[number % 2]
        await hang_up(site)
        found = await pods_after(site, f"web.clusterspace.{cluster}", AGENT, JSON)
        assert found == [f"web.clusterspace.{cluster}"]

    library = await site.ask("GET", MINE, headers=(("User-Agent", "python"), TYPED))
    shown = await site.ask("GET", MINE, headers=(AGENT, ("Accept", "application/json")))
    await hang_up(site)
    later = await site.ask("GET", MINE, headers=(AGENT, TYPED))

    assert library.names == shown.names == later.names == EVERYWHERE


async def test_a_connection_that_named_two_clusters_means_every_one(site: Site):
    await hang_up(site)
    await pods_after(site, "web.clusterspace.west", AGENT, JSON)

    assert await pods_after(site, "web.clusterspace.east", AGENT, JSON) == EVERYWHERE


async def test_a_command_that_waits_for_pods_waits_in_the_right_cluster(site: Site):
    run = logs("waiting")
    got = await site.ask("GET", f"{DEPLOYS}/web.clusterspace.west", headers=run)
    listed = await site.ask("GET", MINE, headers=(*run, TYPED))
    version = listed.body["metadata"]["resourceVersion"]
    watch = ApiRequest("GET", f"{MINE}&watch=true&resourceVersion={version}", headers=(*run, TYPED))
    names: list[str] = []
    async with asyncio.timeout(60), site.connection(ROOT).stream(watch) as stream:
        assert (got.code, stream.status) == (200, 200)
        for cluster in ("east", "west"):
            late = labelled(pod("late"), app="web")
            await site.members[cluster].client.create(ResourcePath(PODS, "default"), late)
        async for chunk in stream.chunks():
            names += [json.loads(line)["object"]["metadata"]["name"] for line in chunk.splitlines()]
            break
    for cluster in ("east", "west"):
        path = f"/clusterspaces/{cluster}/api/v1/namespaces/default/pods/late"
        gone = await site.ask("DELETE", f"{path}?gracePeriodSeconds=0")
        assert gone.code == 200

    assert names == ["late.clusterspace.west"]


async def test_a_bare_name_that_one_cluster_has_leads_to_that_cluster(site: Site):
    only = {**deployment("only"), "spec": deployment("web")["spec"]}
    await site.members["west"].client.create(ResourcePath(DEPLOYMENTS, "default"), only)
    async with without_federation(site) as beside:
        found = await pods_after(beside, "only", *logs("bare"))

    assert found == ["web.clusterspace.west"]
