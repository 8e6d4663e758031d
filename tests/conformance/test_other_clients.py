"""Clients written by other people, unchanged, against a running hub."""

import itertools
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import kr8s.asyncio
import kubernetes
import pytest
from kr8s.asyncio.objects import ConfigMap, Deployment, new_class
from kubernetes.client import ApiClient, ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.watch import Watch
from tests.conformance.hubs import RunningHub
from tests.conformance.kubectl_stage import deployment
from tests.conformance.widgets import DEFINITIONS, GROUP, widget, widget_definition

_numbers = itertools.count(1)


@pytest.fixture
def namespace(hub: RunningHub) -> str:
    """Give a namespace nobody used before."""
    name = f"clients-{next(_numbers)}"
    hub.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def api_client(hub: RunningHub) -> Iterator[ApiClient]:
    """Give the official Python client, configured by the hub's kubeconfig."""
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(hub.kubeconfig), client_configuration=configuration)
    with ApiClient(configuration) as api_client:
        yield api_client


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"name": name}},
        "data": data,
    }


class TestKubernetes:
    def test_lists_come_as_typed_objects_page_by_page(
        self, hub: RunningHub, api_client: ApiClient, namespace: str
    ) -> None:
        core: Any = kubernetes.client.CoreV1Api(api_client)
        for name in ("a", "b", "c"):
            core.create_namespaced_config_map(namespace, config_map(name, key=name))

        first = core.list_namespaced_config_map(namespace, limit=2)
        rest = core.list_namespaced_config_map(
            namespace, limit=2, _continue=first.metadata._continue
        )

        assert [each.metadata.name for each in first.items] == ["a", "b"]
        assert first.metadata.remaining_item_count == 2
        assert [each.metadata.name for each in rest.items] == ["c", "kube-root-ca.crt"]
        assert rest.items[0].data == {"key": "c"}

    def test_a_watch_sees_every_change_after_the_list(
        self, api_client: ApiClient, namespace: str
    ) -> None:
        core: Any = kubernetes.client.CoreV1Api(api_client)
        listed = core.list_namespaced_config_map(namespace)
        core.create_namespaced_config_map(namespace, config_map("a", key="1"))
        core.patch_namespaced_config_map("a", namespace, {"data": {"key": "2"}})
        core.delete_namespaced_config_map("a", namespace)

        events: Any = Watch().stream(
            core.list_namespaced_config_map,
            namespace,
            resource_version=listed.metadata.resource_version,
            timeout_seconds=1,
        )
        seen = [(event["type"], event["object"].data["key"]) for event in events]

        assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]

    def test_deployments_are_created_patched_scaled_and_deleted(
        self, hub: RunningHub, api_client: ApiClient, namespace: str
    ) -> None:
        apps: Any = kubernetes.client.AppsV1Api(api_client)
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
        made = apps.create_namespaced_deployment(namespace, deployment(2))
        assert made.spec.strategy.type == "RollingUpdate"

        image = {"containers": [{"name": "web", "image": "nginx:1.28"}]}
        apps.patch_namespaced_deployment("web", namespace, {"spec": {"template": {"spec": image}}})
        apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 7}})

        spec = hub.get(path)["spec"]
        [container] = spec["template"]["spec"]["containers"]
        assert (spec["replicas"], container["image"]) == (7, "nginx:1.28")
        assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
        apps.delete_namespaced_deployment("web", namespace)
        assert hub.ask("GET", path).status == 404

    def test_a_stale_replace_is_refused_with_a_conflict(
        self, api_client: ApiClient, namespace: str
    ) -> None:
        core: Any = kubernetes.client.CoreV1Api(api_client)
        stale = core.create_namespaced_config_map(namespace, config_map("a", key="1"))
        core.patch_namespaced_config_map("a", namespace, {"data": {"key": "2"}})

        with pytest.raises(ApiException) as refused:
            core.replace_namespaced_config_map("a", namespace, stale)

        assert refused.value.status == 409
        assert core.read_namespaced_config_map("a", namespace).data == {"key": "2"}

    def test_server_side_apply_owns_what_it_applies(
        self, api_client: ApiClient, namespace: str
    ) -> None:
        maps = DynamicClient(api_client).resources.get(api_version="v1", kind="ConfigMap")

        for data in ({"a": "1", "b": "2"}, {"a": "1"}):
            maps.server_side_apply(
                config_map("x", **data), namespace=namespace, field_manager="team"
            )

        found = maps.get("x", namespace)
        assert found.data.to_dict() == {"a": "1"}
        assert found.metadata.managedFields[0].manager == "team"

    def test_a_kind_of_their_own_is_defined_and_used(
        self, hub: RunningHub, api_client: ApiClient, namespace: str
    ) -> None:
        definitions: Any = kubernetes.client.ApiextensionsV1Api(api_client)
        custom: Any = kubernetes.client.CustomObjectsApi(api_client)
        definitions.create_custom_resource_definition(widget_definition("gadgets"))
        wait_until_established(definitions, "gadgets")
        place = (GROUP, "v1", namespace, "gadgets")

        made = custom.create_namespaced_custom_object(*place, widget("Gadget", "g", 1))
        custom.patch_namespaced_custom_object(*place, "g", {"spec": {"size": 5}})
        custom.patch_namespaced_custom_object_status(*place, "g", {"status": {"phase": "New"}})
        with pytest.raises(ApiException, match="should be greater than or equal to 1"):
            custom.patch_namespaced_custom_object(*place, "g", {"spec": {"size": 0}})

        assert made["spec"] == {"size": 1, "color": "red"}
        [listed] = custom.list_namespaced_custom_object(*place)["items"]
        assert (listed["spec"]["size"], listed["status"]) == (5, {"phase": "New"})
        definitions.delete_custom_resource_definition(f"gadgets.{GROUP}")
        assert_is_gone(hub, f"{DEFINITIONS}/gadgets.{GROUP}")


def wait_until_established(definitions: Any, plural: str) -> None:
    events: Any = Watch().stream(
        definitions.list_custom_resource_definition,
        field_selector=f"metadata.name={plural}.{GROUP}",
        timeout_seconds=10,
    )
    for event in events:
        conditions = event["object"].status.conditions or []
        if any(each.type == "Established" and each.status == "True" for each in conditions):
            return
    pytest.fail(f"{plural} were not established")


def assert_is_gone(hub: RunningHub, path: str) -> None:
    """Watch the collection until the object is deleted."""
    collection, _, name = path.rpartition("/")
    field = f"?watch=true&timeoutSeconds=10&fieldSelector=metadata.name={name}"
    with hub.watch(collection + field) as stream:
        if hub.ask("GET", path).status == 404:
            return
        assert any(event["type"] == "DELETED" for event in stream.rest())


class TestKr8s:
    @pytest.fixture
    async def api(self, hub: RunningHub, namespace: str) -> AsyncGenerator[Any]:
        api: Any = await kr8s.asyncio.api(kubeconfig=str(hub.kubeconfig), namespace=namespace)
        yield api
        # It has no public way to close what it opened, and an open socket is a warning here.
        await api._session.aclose()

    async def test_lists_come_with_selectors(self, api: Any) -> None:
        for name in ("a", "b"):
            await (await ConfigMap(config_map(name, key=name), api=api)).create()

        found = [each async for each in api.get("configmaps", label_selector={"name": "b"})]

        assert [each.name for each in found] == ["b"]
        assert found[0].raw["data"] == {"key": "b"}

    async def test_a_watch_sees_each_change(self, hub: RunningHub, api: Any) -> None:
        maps = f"/api/v1/namespaces/{api.namespace}/configmaps"
        hub.create(maps, config_map("a", key="1"))
        seen: list[tuple[str, str]] = []

        async with aclosing(api.watch("configmaps", label_selector={"name": "a"})) as events:
            async for kind, found in events:
                seen.append((kind, found.raw["data"]["key"]))
                if kind != "ADDED":
                    break
                hub.patch(f"{maps}/a", {"data": {"key": "2"}})

        assert seen == [("ADDED", "1"), ("MODIFIED", "2")]

    async def test_a_deployment_is_patched_scaled_and_deleted(
        self, hub: RunningHub, api: Any
    ) -> None:
        web = await Deployment(deployment(2), api=api)
        await web.create()
        await web.label(tier="front")
        await web.patch({"spec": {"paused": True}})
        await web.patch({"spec": {"replicas": 4}}, subresource="scale")

        found = hub.get(f"/apis/apps/v1/namespaces/{api.namespace}/deployments/web")
        assert found["metadata"]["labels"] == {"app": "web", "tier": "front"}
        assert (found["spec"]["paused"], found["spec"]["replicas"]) == (True, 4)
        await web.delete()
        await web.wait("delete", timeout=10)
        assert not await web.exists()

    async def test_a_kind_of_their_own_is_used(self, hub: RunningHub, api: Any) -> None:
        hub.create(DEFINITIONS, widget_definition("gizmos"))
        definition = await kr8s.asyncio.objects.CustomResourceDefinition.get(
            f"gizmos.{GROUP}", api=api
        )
        await definition.wait("condition=Established", timeout=10)
        gizmo_class = new_class("Gizmo", version=f"{GROUP}/v1", namespaced=True)

        gizmo = await gizmo_class(widget("Gizmo", "g", 1), api=api)
        await gizmo.create()
        await gizmo.patch({"spec": {"size": 5}})

        assert [each.spec.size async for each in api.get(f"gizmos.{GROUP}")] == [5]
        assert hub.get(f"/apis/{GROUP}/v1/gizmos")["items"][0]["spec"] == {
            "size": 5,
            "color": "red",
        }
