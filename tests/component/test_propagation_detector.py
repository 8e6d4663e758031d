"""Templates, policies and bindings on a live hub: claims, stickiness, ends, crashes."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.component.detection import detecting, killed_once, new_space, versions
from tests.unit.fleet.propagation.policy_objects import config_maps, policy

from clusterspace.apis import stamps
from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICIES,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
)
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.controllers.events import EVENTS
from clusterspace.errors import NotServed
from clusterspace.fleet.propagation.bindings import claim_of, is_marked
from clusterspace.fleet.propagation.detector import PRIORITY_CLASSES
from clusterspace.fleet.propagation.templates import DEFINITIONS
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, config_map, deployment
from clusterspace.testing.crashes import CrashingClient, CrashPoint
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.steps import delete, edit, until

_GADGETS = GroupVersionResource("example.com", "v1", "gadgets")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterClient]:
    directory = tmp_path_factory.mktemp("hub")
    async with hub_for_test(directory) as settings, client_for_test(settings) as hub_client:
        yield hub_client


@pytest_asyncio.fixture(loop_scope="module")
async def space(hub_client: ClusterClient) -> str:
    return await new_space(hub_client)


def template(space: str, name: str = "web") -> ResourcePath:
    return ResourcePath(CONFIG_MAPS, space, name)


def binding(space: str, name: str = "web") -> ResourcePath:
    return ResourcePath(RESOURCE_BINDINGS, space, f"{name}-configmap")


def pp(space: str, name: str = "all") -> ResourcePath:
    return ResourcePath(PROPAGATION_POLICIES, space, name)


async def create(hub_client: ClusterClient, *objects: Object) -> None:
    resources = {
        "ConfigMap": CONFIG_MAPS,
        "PropagationPolicy": PROPAGATION_POLICIES,
        "ClusterPropagationPolicy": CLUSTER_PROPAGATION_POLICIES,
    }
    for each in objects:
        place = ResourcePath(resources[each["kind"]], each["metadata"].get("namespace", ""))
        await hub_client.create(place, each)


async def follows(hub_client: ClusterClient, space: str, name: str, by: str) -> bool:
    """Whether template and binding both say that they follow a policy."""
    bound = await hub_client.find(binding(space, name))
    held = claim_of(await hub_client.get(template(space, name)))
    return bound is not None and held is not None and held == claim_of(bound) and held.name == by


async def test_a_template_is_bound_whichever_of_it_and_its_policy_came_first(
    hub_client: ClusterClient, space: str
) -> None:
    async with detecting(hub_client):
        await create(hub_client, config_map("before", namespace=space))
        await create(hub_client, policy("all", space, config_maps()))
        await create(hub_client, config_map("after", namespace=space))

        await until(lambda: follows(hub_client, space, "before", "all"))
        await until(lambda: follows(hub_client, space, "after", "all"))
    kept = await hub_client.find(ResourcePath(CONFIG_MAPS, space, "kube-root-ca.crt"))
    assert kept is None or not is_marked(kept)


async def test_nothing_is_written_when_nothing_changed(
    hub_client: ClusterClient, space: str
) -> None:
    await create(hub_client, config_map("web", namespace=space))
    await create(hub_client, policy("all", space, config_maps()))
    async with detecting(hub_client):
        await until(lambda: follows(hub_client, space, "web", "all"))
    places = (template(space), binding(space), pp(space))
    before = await versions(hub_client, *places)

    counting = CrashingClient(hub_client)
    async with detecting(hub_client, counting) as life:
        # A life that has seen a later change of the same kind has seen all that was there before.
        await create(hub_client, config_map("later", namespace=space))
        await until(lambda: follows(hub_client, space, "later", "all"))
        await until(lambda: life.templates.has_synced)

    assert await versions(hub_client, *places) == before
    assert counting.writes == 2  # the stamp and the binding of the later one


async def test_a_changed_template_tells_its_binding_and_a_changed_status_does_not(
    hub_client: ClusterClient, space: str
) -> None:
    place, bound = (
        ResourcePath(DEPLOYMENTS, space, "web"),
        ResourcePath(RESOURCE_BINDINGS, space, "web-deployment"),
    )
    await hub_client.create(place.collection, deployment("web", namespace=space))
    await create(hub_client, policy("all", space, {"apiVersion": "apps/v1", "kind": "Deployment"}))
    async with detecting(hub_client):
        await until(lambda: hub_client.find(bound))
        before = await versions(hub_client, bound)
        counted = with_value(await hub_client.get(place), {"replicas": 3}, "status")
        await hub_client.update(place.with_subresource("status"), counted)
        await create(hub_client, config_map("later", namespace=space))
        await create(hub_client, policy("later", space, config_maps(name="later")))
        await until(lambda: follows(hub_client, space, "later", "later"))
        assert await versions(hub_client, bound) == before

        changed = await edit(
            hub_client, place, lambda held: with_value(held, 5, "spec", "replicas")
        )

        async def is_told() -> bool:
            spec = (await hub_client.get(bound))["spec"]
            version = spec["resource"]["resourceVersion"]
            return (spec["replicas"], version) == (5, changed["metadata"]["resourceVersion"])

        await until(is_told)


async def test_a_better_policy_does_not_take_over(hub_client: ClusterClient, space: str) -> None:
    await create(hub_client, config_map("web", namespace=space))
    await create(hub_client, policy("all", space, config_maps()))
    async with detecting(hub_client):
        await until(lambda: follows(hub_client, space, "web", "all"))
        await create(
            hub_client,
            policy("better", space, config_maps(name="web"), priority=10),
            config_map("fresh", namespace=space),
            policy("best", space, config_maps(name="second"), priority=20),
            config_map("second", namespace=space),
        )
        await until(lambda: follows(hub_client, space, "second", "best"))
        # Marks lost to a `kubectl replace` come back as they were.
        await edit(
            hub_client,
            template(space),
            lambda each: with_metadata(each, labels=None, annotations=None),
        )
        await until(lambda: follows(hub_client, space, "web", "all"))


async def test_preempted_by_a_higher_priority_and_given_back_by_a_lower_one(
    hub_client: ClusterClient, space: str
) -> None:
    by_name = config_maps(name="web")
    low = policy("low", space, by_name, priority=1, preemption="Always")
    high = policy("high", space, by_name, priority=2, preemption="Always")
    other = {"clusterAffinity": {"clusterNames": ["elsewhere"]}}

    async def follows(name: str) -> None:
        async def holds() -> bool:
            places = (template(space), binding(space))
            claims = [claim_of(await hub_client.find(each) or {}) for each in places]
            return [each and each.name for each in claims] == [name, name]

        await until(holds)

    async with detecting(hub_client):
        await create(hub_client, low, config_map("web", namespace=space))
        await follows("low")
        await create(hub_client, with_value(high, other, "spec", "placement"))
        await follows("high")
        assert (await hub_client.get(binding(space)))["spec"]["placement"] == other
        await edit(
            hub_client, pp(space, "high"), lambda held: with_value(held, 0, "spec", "priority")
        )
        await follows("low")


async def test_a_deleted_policy_leaves_bindings_and_takes_its_marks(
    hub_client: ClusterClient, space: str
) -> None:
    await create(hub_client, config_map("web", namespace=space))
    await create(hub_client, policy("all", space, config_maps()))
    async with detecting(hub_client):
        await until(lambda: follows(hub_client, space, "web", "all"))
        before = await hub_client.get(binding(space))

        await delete(hub_client, pp(space))

        async def is_free() -> bool:
            return not is_marked(await hub_client.get(template(space)))

        await until(is_free)

        async def is_gone() -> bool:
            return await hub_client.find(pp(space)) is None

        await until(is_gone)
        after = await hub_client.get(binding(space))
    assert not is_marked(after)
    assert after["spec"] == before["spec"]
    assert uid_of(after) == uid_of(before)


async def test_a_policy_that_only_our_cache_does_not_see_keeps_its_claims(
    hub_client: ClusterClient, space: str
) -> None:
    await create(hub_client, config_map("web", namespace=space))
    await create(hub_client, policy("all", space, config_maps()))
    async with detecting(hub_client):
        await until(lambda: follows(hub_client, space, "web", "all"))
    before = await versions(hub_client, template(space), binding(space))

    wide = f"wide-{space}"
    await create(hub_client, policy(wide, "", config_maps(namespace=space)))
    async with detecting(hub_client, sees_policies=False):
        await create(hub_client, config_map("later", namespace=space))
        await until(lambda: follows(hub_client, space, "later", wide))

        assert await versions(hub_client, template(space), binding(space)) == before
    await delete(hub_client, ResourcePath(CLUSTER_PROPAGATION_POLICIES, "", wide))


async def test_a_template_that_is_no_longer_selected_goes_to_the_next_policy_or_to_none(
    hub_client: ClusterClient, space: str
) -> None:
    for name in ("web", "shop"):
        await create(hub_client, config_map(name, namespace=space))
    await create(hub_client, policy("all", space, config_maps(), priority=5))
    async with detecting(hub_client):
        for name in ("web", "shop"):
            await until(lambda name=name: follows(hub_client, space, name, "all"))
        await create(hub_client, policy("web", space, config_maps(name="web")))

        await edit(
            hub_client,
            pp(space),
            lambda each: with_value(
                each, [config_maps(name="other", namespace=space)], "spec", "resourceSelectors"
            ),
        )

        await until(lambda: follows(hub_client, space, "web", "web"))

        async def is_free() -> bool:
            marked = [
                is_marked(await hub_client.get(place))
                for place in (template(space, "shop"), binding(space, "shop"))
            ]
            return not any(marked)

        await until(is_free)


async def test_a_policy_of_the_namespace_comes_before_one_of_the_cluster(
    hub_client: ClusterClient, space: str
) -> None:
    wide = policy(f"wide-{space}", "", config_maps(namespace=space), priority=100)
    await create(hub_client, config_map("web", namespace=space), wide)
    await create(hub_client, policy("own", space, config_maps(labelSelector={})))
    async with detecting(hub_client):
        await until(lambda: follows(hub_client, space, "web", "own"))
        await delete(hub_client, pp(space, "own"))
        await until(lambda: follows(hub_client, space, "web", f"wide-{space}"))
        held = await hub_client.get(template(space))
        assert stamps.POLICY_ID not in labels_of(held)
        assert stamps.POLICY_NAME not in annotations_of(held)
        await delete(hub_client, ResourcePath(CLUSTER_PROPAGATION_POLICIES, "", f"wide-{space}"))


async def test_a_changed_policy_changes_its_bindings_and_a_lazy_one_waits_for_the_template(
    hub_client: ClusterClient, space: str
) -> None:
    lazy = {"activationPreference": "Lazy"}
    await create(hub_client, policy("all", space, config_maps(), **lazy))
    async with detecting(hub_client):
        await create(hub_client, config_map("web", namespace=space))
        await until(lambda: follows(hub_client, space, "web", "all"))

        await edit(hub_client, pp(space), _overwriting)
        await create(hub_client, config_map("later", namespace=space))
        await until(lambda: follows(hub_client, space, "later", "all"))
        held = await hub_client.get(binding(space))
        assert find_at(held, "spec", "conflictResolution") == "Abort"

        await edit(hub_client, template(space), lambda each: {**each, "data": {"k": "new"}})
        await until(lambda: _overwrites(hub_client, binding(space)))


async def test_a_binding_of_an_earlier_template_of_that_name_is_waited_for(
    hub_client: ClusterClient, space: str
) -> None:
    await create(hub_client, config_map("web", namespace=space))
    await create(hub_client, policy("all", space, config_maps()))
    async with detecting(hub_client):
        await until(lambda: follows(hub_client, space, "web", "all"))
        old = await hub_client.get(binding(space))

        await delete(hub_client, template(space))
        await create(hub_client, config_map("web", namespace=space))

        async def is_waiting() -> bool:
            return bool(
                find_at(await hub_client.get(binding(space)), "metadata", "deletionTimestamp")
            )

        await until(is_waiting)
        held = await hub_client.get(binding(space))
        assert uid_of(held) == uid_of(old)
        # Whoever removes Works is done.
        await edit(hub_client, binding(space), lambda each: with_metadata(each, finalizers=None))

        async def is_anew() -> bool:
            found = await hub_client.find(binding(space))
            return found is not None and uid_of(found) != uid_of(old)

        await until(is_anew)
        await until(lambda: follows(hub_client, space, "web", "all"))


async def test_a_policy_waits_for_the_overrides_it_names(
    hub_client: ClusterClient, space: str
) -> None:
    await create(hub_client, config_map("web", namespace=space))
    await create(hub_client, policy("all", space, config_maps(), dependentOverrides=["mirror"]))
    async with detecting(hub_client):
        await create(hub_client, policy("other", space, config_maps(name="other")))
        await create(hub_client, config_map("other", namespace=space))
        await until(lambda: follows(hub_client, space, "other", "other"))
        assert await hub_client.find(binding(space)) is None

        override = {
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "OverridePolicy",
            "metadata": {"name": "mirror", "namespace": space},
            "spec": {"overrideRules": []},
        }
        await hub_client.create(ResourcePath(OVERRIDE_POLICIES, space), override)

        await until(lambda: follows(hub_client, space, "web", "all"))


def _definition(plural: str, kind: str) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    }


async def test_kinds_that_appear_later_are_bound_too(hub_client: ClusterClient, space: str) -> None:
    definition = _definition("gadgets", "Gadget")
    resource = ResourcePath(_GADGETS, space)
    async with detecting(hub_client) as life:
        await hub_client.create(ResourcePath(DEFINITIONS), definition)
        await create(
            hub_client, policy("all", space, {"apiVersion": "example.com/v1", "kind": "Gadget"})
        )
        gadget = {
            "apiVersion": "example.com/v1",
            "kind": "Gadget",
            "metadata": {"name": "one", "namespace": space},
            "spec": {"size": 3},
        }

        async def is_made() -> bool:
            try:
                await hub_client.create(resource, gadget)
            except NotServed:
                return False
            return True

        await until(is_made)
        bound = ResourcePath(RESOURCE_BINDINGS, space, "one-gadget")

        async def is_bound() -> Any:
            return await hub_client.find(bound)

        await until(is_bound)
        await delete(hub_client, ResourcePath(DEFINITIONS, "", "gadgets.example.com"))

        async def is_forgotten() -> bool:
            kind = GroupVersionKind("example.com", "v1", "Gadget")
            return life.templates.find_resource(kind) is None

        await until(is_forgotten)
        assert not life.is_over


@pytest.mark.parametrize("write", range(1, 10))
async def test_killed_after_any_write_it_ends_where_it_would_have(
    hub_client: ClusterClient, space: str, write: int
) -> None:
    """The story: bind two templates, then delete the policy of one of them."""
    dying = CrashingClient(hub_client, CrashPoint(write, is_after=True))
    async with killed_once(hub_client, dying):
        await create(
            hub_client,
            config_map("web", namespace=space),
            config_map("shop", namespace=space),
            policy("web", space, config_maps(name="web")),
            policy("shop", space, config_maps(name="shop")),
        )
        for name in ("web", "shop"):
            await until(lambda name=name: follows(hub_client, space, name, name))
        await delete(hub_client, pp(space, "web"))
        await until(lambda: _is_told_to_the_end(hub_client, space))

    free = await hub_client.get(binding(space, "web"))
    kept = await hub_client.get(binding(space, "shop"))
    assert find_at(free, "spec", "placement") == find_at(kept, "spec", "placement")


async def _is_told_to_the_end(hub_client: ClusterClient, space: str) -> bool:
    if await hub_client.find(pp(space, "web")) is not None:
        return False
    if not await follows(hub_client, space, "shop", "shop"):
        return False
    places = (template(space, "web"), binding(space, "web"))
    return not any([is_marked(await hub_client.get(place)) for place in places])


def _overwriting(held: Object) -> Object:
    return with_value(held, "Overwrite", "spec", "conflictResolution")


async def _overwrites(hub_client: ClusterClient, place: ResourcePath) -> bool:
    return find_at(await hub_client.get(place), "spec", "conflictResolution") == "Overwrite"


async def test_a_policy_gives_its_bindings_the_value_of_its_priority_class(
    hub_client: ClusterClient, space: str
) -> None:
    asked = {"priorityClassSource": "KubePriorityClass", "priorityClassName": f"urgent-{space}"}
    await create(hub_client, config_map("web", namespace=space))
    await create(hub_client, policy("all", space, config_maps(), schedulePriority=asked))
    async with detecting(hub_client) as life:

        async def is_told() -> bool:
            await life.events.flush()
            told = await hub_client.list_objects(ResourcePath(EVENTS, space))
            return any("there is no PriorityClass urgent" in each["message"] for each in told)

        await until(is_told)
        assert await hub_client.find(binding(space)) is None
    made: Object = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    named = {**made, "metadata": {"name": f"urgent-{space}"}, "value": 1000}
    await hub_client.create(ResourcePath(PRIORITY_CLASSES), named)
    async with detecting(hub_client):
        await until(lambda: follows(hub_client, space, "web", "all"))

    bound = await hub_client.get(binding(space))
    assert bound["spec"]["schedulePriority"] == {"priority": 1000}
