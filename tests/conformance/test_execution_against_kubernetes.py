"""The executor on a real kube-apiserver: what it notes of owners is what our decisions rest on."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.component.execution_site import CLUSTER, Site, executing, joined_hub, work_of

from clusterspace.apis import stamps
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, PatchType, WriteOptions
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    name_of,
    resource_version_of,
    with_value,
)
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, config_map, deployment
from clusterspace.testing.faults import FaultProxy, fault_proxy
from clusterspace.testing.hubs import client_for_test, real_server_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import until

KUBECTL = WriteOptions(field_manager="kubectl-client-side-apply")


@dataclass
class Stage:
    site: Site
    proxy: FaultProxy
    """What the executor says to the member goes through here."""
    member: ClusterClient

    def writes(self) -> list[str]:
        return [each for each in self.proxy.requests if not each.startswith("GET")]


@asynccontextmanager
async def stage(directory: Path) -> AsyncGenerator[Stage]:
    (directory / "member").mkdir()
    async with (
        real_server_for_test(directory / "member", name=CLUSTER) as real,
        joined_hub(directory / "hub") as hub,
        client_for_test(real.settings) as direct,
        fault_proxy(direct.connection) as proxy,
        client_for_test(proxy.settings) as member,
    ):
        yield Stage(Site(hub, direct), proxy, member)


def several() -> list[Object]:
    """Return one object of many kinds: each has something its server adds."""
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [_container()]}}
    return [
        config_map("some", {"a": "1"}),
        deployment("some"),
        _named("v1", "Service", spec={"selector": {"app": "x"}, "ports": [{"port": 80}]}),
        _named("v1", "ServiceAccount"),
        _named("v1", "Secret", stringData={"a": "b"}),
        _named("v1", "PersistentVolumeClaim", spec={
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}),
        _named("apps/v1", "StatefulSet", spec={
            "serviceName": "x", "selector": {"matchLabels": {"app": "x"}}, "template": template}),
        _named("batch/v1", "Job", spec={"template": {
            "spec": {"restartPolicy": "Never", "containers": [_container()]}}}),
        _named("batch/v1", "CronJob", spec={"schedule": "* * * * *", "jobTemplate": {"spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [_container()]}}}}}),
        _named("rbac.authorization.k8s.io/v1", "Role", rules=[
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
        _named("networking.k8s.io/v1", "Ingress", spec={
            "defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}),
        _named("autoscaling/v2", "HorizontalPodAutoscaler", spec={"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}),
    ]  # fmt: skip


def _container() -> Object:
    return {
        "name": "main",
        "image": "web:1",
        "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": "1000m"}},
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }


def _named(api_version: str, kind: str, **content: object) -> Object:
    metadata = {"name": "some", "namespace": "default"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


async def test_each_kind_is_written_once_and_then_left_in_peace(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        works: list[Object] = []
        async with executing(on.site, member=on.member):
            for manifest in several():
                works.append(await on.site.order(work_of(manifest)))  # noqa: PERF401
            for work in works:
                await on.site.applied(name_of(work))
        first = len(on.writes())
        async with executing(on.site, member=on.member):
            # A new life compares everything once; what it finds is what it would have written.
            # An order that comes after them shows that it is at work.
            decoy = await on.site.order(work_of(_named("v1", "LimitRange", spec={"limits": []})))
            await on.site.applied(name_of(decoy))
            await settled()
        written = on.writes()[first:]
        again = [each for each in written if not re.search("/events|/limitranges", each)]
        stored = [await on.site.work(name_of(each)) for each in works]

    assert again == []
    assert all(find_at(each, "status", "manifestStatuses") for each in stored)


async def test_a_takeover_changes_nothing_that_runs(tmp_path: Path) -> None:
    place = ResourcePath(DEPLOYMENTS, "default", "web")
    async with stage(tmp_path) as on:
        legacy = await on.site.member.create(place.collection, deployment("web"), KUBECTL)
        sidecar = {
            "metadata": {"resourceVersion": resource_version_of(legacy)},
            "spec": {"template": {"spec": {"containers": [{"name": "proxy", "image": "p:1"}]}}},
        }
        injector = WriteOptions(field_manager="injector")
        await on.site.member.patch(place, PatchType.STRATEGIC, sidecar, injector)
        scale = await on.site.member.get(place.with_subresource("scale"))
        wanted = with_value(scale, 4, "spec", "replicas")
        autoscaler = WriteOptions(field_manager="kube-controller-manager")
        await on.site.member.update(place.with_subresource("scale"), wanted, autoscaler)
        before = await on.site.member.get(place)

        async with executing(on.site, member=on.member):
            work = await on.site.order(work_of(deployment("web"), resolution="overwrite"))
            await on.site.applied(name_of(work))
        after = await on.site.member.get(place)

    assert after["spec"] == before["spec"]
    assert labels_of(after)[stamps.MANAGED] == "true"


async def test_overwriting_replaces_what_kubectl_had_applied(tmp_path: Path) -> None:
    place = ResourcePath(CONFIG_MAPS, "default", "conf")
    async with stage(tmp_path) as on:
        await on.site.member.create(place.collection, config_map("conf", {"old": "1"}), KUBECTL)

        async with executing(on.site, member=on.member):
            manifest = config_map("conf", {"new": "1"})
            work = await on.site.order(work_of(manifest, resolution="overwrite"))
            await on.site.applied(name_of(work))

            async def is_replaced() -> bool:
                return (await on.site.member.get(place))["data"] == {"new": "1"}

            await until(is_replaced)
