"""What a template needs follows it on a live hub, and stays no longer than it is needed."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.component.detection import detecting, killed_once, new_space
from tests.unit.fleet.propagation.policy_objects import policy

from clusterspace.apis import stamps
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.events import EVENTS
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    find_at,
    labels_of,
    with_value,
    without_value,
)
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    SECRETS,
    config_map,
    deployment,
)
from clusterspace.testing.crashes import CrashingClient, CrashPoint
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.steps import delete, edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLUSTERS = [{"name": "member1", "replicas": 1}, {"name": "member2", "replicas": 1}]
ENV_FROM = ("spec", "template", "spec", "containers")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterClient]:
    directory = tmp_path_factory.mktemp("hub")
    async with hub_for_test(directory) as settings, client_for_test(settings) as hub_client:
        yield hub_client


@pytest_asyncio.fixture(loop_scope="module")
async def space(hub_client: ClusterClient) -> str:
    return await new_space(hub_client)


def needing(name: str, space: str, config: str = "settings") -> Object:
    held = deployment(name, namespace=space)
    containers = [
        {
            "name": "main",
            "image": "web:1",
            "envFrom": [{"configMapRef": {"name": config}}, {"secretRef": {"name": "password"}}],
        }
    ]
    return with_value(held, containers, *ENV_FROM)


def rb(space: str, name: str) -> ResourcePath:
    return ResourcePath(RESOURCE_BINDINGS, space, name)


async def schedule(hub_client: ClusterClient, place: ResourcePath, clusters: list[Object]) -> None:
    """Do the scheduler's part."""
    await until(lambda: hub_client.find(place))
    await edit(hub_client, place, lambda held: with_value(held, clusters, "spec", "clusters"))


async def start(hub_client: ClusterClient, space: str, name: str, **spec: Any) -> None:
    """Make a Deployment that needs a ConfigMap and a Secret, with a policy, and schedule it."""
    selector = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    wanted = policy(name, space, selector, **{"propagateDeps": True, **spec})
    await hub_client.create(ResourcePath(PROPAGATION_POLICIES, space), wanted)
    await hub_client.create(ResourcePath(DEPLOYMENTS, space), needing(name, space))
    await schedule(hub_client, rb(space, f"{name}-deployment"), CLUSTERS)


async def required_by(hub_client: ClusterClient, place: ResourcePath) -> list[str]:
    held = await hub_client.find(place)
    return [each["name"] for each in find_at(held, "spec", "requiredBy") or []]


async def test_dependencies_go_where_the_template_goes_and_late_ones_follow(
    hub_client: ClusterClient, space: str
) -> None:
    await hub_client.create(
        ResourcePath(CONFIG_MAPS, space), config_map("settings", namespace=space)
    )
    async with detecting(hub_client):
        await start(hub_client, space, "web")
        attached = await until(lambda: hub_client.find(rb(space, "settings-configmap")))
        assert await hub_client.find(rb(space, "password-secret")) is None
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "password", "namespace": space},
        }
        await hub_client.create(ResourcePath(SECRETS, space), secret)
        await until(lambda: hub_client.find(rb(space, "password-secret")))

        await schedule(hub_client, rb(space, "web-deployment"), CLUSTERS[:1])

        async def has_moved() -> bool:
            held = await hub_client.get(rb(space, "password-secret"))
            return find_at(held, "spec", "requiredBy")[0]["clusters"] == CLUSTERS[:1]

        await until(has_moved)
        parent = await hub_client.get(rb(space, "web-deployment"))
    entry = {"namespace": space, "name": "web-deployment", "clusters": CLUSTERS}
    assert find_at(attached, "spec", "requiredBy") == [entry]
    assert "placement" not in attached["spec"]
    label = stamps.depended_by_label(space, "web-deployment")
    assert labels_of(attached)[label] == labels_of(parent)[stamps.BINDING_ID]
    assert stamps.DEPENDENCIES_FINALIZER in finalizers_of(parent)
    assert find_at(parent, "metadata", "annotations", stamps.BINDING_DEPENDENCIES) == (
        f'[{{"apiVersion":"v1","kind":"ConfigMap","namespace":"{space}","name":"settings"}},'
        f'{{"apiVersion":"v1","kind":"Secret","namespace":"{space}","name":"password"}}]'
    )


async def test_what_is_no_longer_needed_is_let_go_of_and_the_rest_is_not(
    hub_client: ClusterClient, space: str
) -> None:
    for name in ("settings", "others"):
        await hub_client.create(ResourcePath(CONFIG_MAPS, space), config_map(name, namespace=space))
    async with detecting(hub_client):
        await start(hub_client, space, "web")
        await start(hub_client, space, "shop")
        settings = rb(space, "settings-configmap")
        parents = ["shop-deployment", "web-deployment"]

        async def is_required_by_both() -> bool:
            return await required_by(hub_client, settings) == parents

        await until(is_required_by_both)

        changed = needing("web", space, config="others")["spec"]
        await edit(
            hub_client,
            ResourcePath(DEPLOYMENTS, space, "web"),
            lambda held: {**held, "spec": changed},
        )

        async def has_changed() -> bool:
            first = await required_by(hub_client, settings)
            second = await required_by(hub_client, rb(space, "others-configmap"))
            return first == ["shop-deployment"] and second == ["web-deployment"]

        await until(has_changed)


async def test_a_parent_that_goes_lets_go_of_everything_and_is_let_go_of(
    hub_client: ClusterClient, space: str
) -> None:
    await hub_client.create(
        ResourcePath(CONFIG_MAPS, space), config_map("settings", namespace=space)
    )
    async with detecting(hub_client):
        await start(hub_client, space, "web")
        attached = rb(space, "settings-configmap")
        await until(lambda: required_by(hub_client, attached))

        await delete(hub_client, ResourcePath(DEPLOYMENTS, space, "web"))

        async def is_over() -> bool:
            parent = await hub_client.get(rb(space, "web-deployment"))
            left = await required_by(hub_client, attached)
            return not left and stamps.DEPENDENCIES_FINALIZER not in finalizers_of(parent)

        await until(is_over)
    held = await hub_client.get(attached)
    assert not any(key.startswith(stamps.DEPENDED_BY_PREFIX) for key in labels_of(held))


async def test_a_policy_that_no_longer_takes_dependencies_along_lets_go_of_them(
    hub_client: ClusterClient, space: str
) -> None:
    await hub_client.create(
        ResourcePath(CONFIG_MAPS, space), config_map("settings", namespace=space)
    )
    async with detecting(hub_client):
        await start(hub_client, space, "web")
        attached = rb(space, "settings-configmap")
        await until(lambda: required_by(hub_client, attached))

        await edit(
            hub_client,
            ResourcePath(PROPAGATION_POLICIES, space, "web"),
            lambda held: without_value(held, "spec", "propagateDeps"),
        )

        async def is_over() -> bool:
            parent = await hub_client.get(rb(space, "web-deployment"))
            noted = find_at(parent, "metadata", "annotations", stamps.BINDING_DEPENDENCIES)
            return not await required_by(hub_client, attached) and noted is None

        await until(is_over)


async def test_one_parent_that_overwrites_is_enough_and_the_disagreement_is_told(
    hub_client: ClusterClient, space: str
) -> None:
    await hub_client.create(
        ResourcePath(CONFIG_MAPS, space), config_map("settings", namespace=space)
    )
    async with detecting(hub_client) as life:
        await start(hub_client, space, "web")
        await start(hub_client, space, "shop", conflictResolution="Overwrite")

        async def overwrites() -> bool:
            held = await hub_client.find(rb(space, "settings-configmap"))
            return find_at(held, "spec", "conflictResolution") == "Overwrite"

        async def is_told() -> bool:
            await life.events.flush()
            events = await hub_client.list_objects(ResourcePath(EVENTS, space))
            told = {
                (event["reason"], event["involvedObject"]["name"], event["message"])
                for event in events
            }
            conflict = "ConflictResolution conflicted (Overwrite vs Abort)."
            message = f"Dependency policy conflict detected: {conflict}"
            return ("DependencyPolicyConflict", "settings-configmap", message) in told

        await until(overwrites)
        await until(is_told)


@pytest.mark.parametrize("write", range(1, 9))
async def test_killed_after_any_write_it_lets_go_of_exactly_what_it_would_have(
    hub_client: ClusterClient, space: str, write: int
) -> None:
    """The story: a Deployment and what it needs, then the Deployment goes."""
    await hub_client.create(
        ResourcePath(CONFIG_MAPS, space), config_map("settings", namespace=space)
    )
    dying = CrashingClient(hub_client, CrashPoint(write, is_after=True))
    attached, parent = rb(space, "settings-configmap"), rb(space, "web-deployment")
    async with killed_once(hub_client, dying):
        await start(hub_client, space, "web")
        await start(hub_client, space, "shop")
        both = ["shop-deployment", "web-deployment"]

        async def is_required_by_both() -> bool:
            return await required_by(hub_client, attached) == both

        await until(is_required_by_both)
        await delete(hub_client, ResourcePath(DEPLOYMENTS, space, "web"))

        async def is_let_go_of() -> bool:
            held = finalizers_of(await hub_client.get(parent))
            left = await required_by(hub_client, attached)
            return left == ["shop-deployment"] and stamps.DEPENDENCIES_FINALIZER not in held

        await until(is_let_go_of)
