"""`clusterspace promote` and `clusterspace resume`, against a running hub and a member."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.component.execution_site import CLUSTER, Site, executing, two_clusters, work_of

from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.cli.commands.workloads import promote, resume
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.errors import CannotPromote
from clusterspace.fleet.execution.promotion import Effect, plan_promotion
from clusterspace.fleet.execution.prune import is_paused
from clusterspace.kube.objects import (
    annotations_of,
    name_of,
    resource_version_of,
    uid_of,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.roots import workloads
from clusterspace.roots.clients import hub_settings
from clusterspace.roots.workloads import PromoteRequest, Prospect
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    config_map,
    deployment,
    namespace,
)
from clusterspace.testing.steps import until

WEB = ResourcePath(DEPLOYMENTS, "default", "web")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with two_clusters(tmp_path) as site:
        yield site


async def run(tmp_path: Path, command: click.Command, *words: str) -> Result:
    hub = ("--kubeconfig", str(tmp_path / "hub" / "kubeconfig"))
    return await asyncio.to_thread(CliRunner().invoke, command, [*words, *hub])


async def promote_web(tmp_path: Path, *words: str) -> Result:
    member = ("--cluster-kubeconfig", str(tmp_path / "member" / "kubeconfig"))
    named = ("deploy", "web", "-n", "default", "-C", CLUSTER)
    return await run(tmp_path, promote, *named, *member, *words)


async def test_promote_writes_template_and_policy_and_says_so(site: Site, tmp_path: Path) -> None:
    await site.member.create(WEB.collection, deployment("web", replicas=3), site.foreign)

    told = await promote_web(tmp_path)

    name = stamps.promoted_policy_name(
        GroupVersionKind("apps", "v1", "Deployment"), "default", "web"
    )
    assert told.output.splitlines() == [
        "ResourceTemplate (default/web) is created successfully",
        f"PropagationPolicy (default/{name}) is created successfully",
        'Resource "apps/v1, Resource=deployments"(default/web) is promoted successfully',
    ]
    template = await site.hub.get(WEB)
    assert template["spec"]["replicas"] == 3
    assert annotations_of(template)[stamps.CONFLICT_RESOLUTION] == "overwrite"
    policy = await site.hub.get(ResourcePath(PROPAGATION_POLICIES, "default", name))
    assert policy["spec"]["preserveResourcesOnDeletion"] is True
    assert policy["spec"]["placement"]["clusterAffinity"]["clusterNames"] == [CLUSTER]


async def test_a_dry_run_says_what_would_change_and_changes_nothing(
    site: Site, tmp_path: Path
) -> None:
    before = await site.member.create(WEB.collection, deployment("web"), site.foreign)

    told = await promote_web(tmp_path, "--dry-run")

    assert told.exit_code == 0, told.output
    assert told.output.splitlines() == [
        "would take over deployments.apps default/web in west",
        "  nothing would change but labels and annotations",
        "  no pod would restart",
    ]
    after = await site.member.get(WEB)
    assert resource_version_of(after) == resource_version_of(before)
    assert await site.hub.find(WEB) is None


async def test_what_is_on_the_hub_already_is_left_as_it_is(site: Site, tmp_path: Path) -> None:
    await site.member.create(WEB.collection, deployment("web"), site.foreign)
    present = await site.hub.create(WEB.collection, deployment("web", replicas=7))

    told = await promote_web(tmp_path)

    assert told.exit_code == 1
    assert "is on the hub already" in told.output
    assert resource_version_of(await site.hub.get(WEB)) == resource_version_of(present)
    assert await site.hub.list_objects(ResourcePath(PROPAGATION_POLICIES)) == []


async def test_a_dry_run_fails_where_the_promotion_would(site: Site, tmp_path: Path) -> None:
    await site.member.create(WEB.collection, deployment("web"), site.foreign)
    present = await site.hub.create(WEB.collection, deployment("web", replicas=7))

    told = await promote_web(tmp_path, "--dry-run")

    assert told.exit_code == 1
    assert "is on the hub already" in told.output
    assert resource_version_of(await site.hub.get(WEB)) == resource_version_of(present)
    assert await site.hub.list_objects(ResourcePath(PROPAGATION_POLICIES)) == []


async def test_a_dry_run_fails_where_the_hub_has_no_such_namespace(
    site: Site, tmp_path: Path
) -> None:
    inside = ResourcePath(DEPLOYMENTS, "yard")
    await site.member.create(ResourcePath(NAMESPACES), namespace("yard"))
    await site.member.create(
        inside, with_metadata(deployment("web"), namespace="yard"), site.foreign
    )

    told = await promote_web(tmp_path, "--dry-run", "-n", "yard")

    assert told.exit_code == 1
    assert "namespace yard does not exist on the hub: create it there first" in told.output


async def test_what_a_workload_needs_is_promoted_before_it_if_only_the_member_has_it(
    site: Site, tmp_path: Path
) -> None:
    web = deployment("web")
    web["spec"]["template"]["spec"]["containers"][0]["envFrom"] = [
        {"configMapRef": {"name": "settings"}},
        {"configMapRef": {"name": "shared"}},
        {"configMapRef": {"name": "missing"}},
    ]
    await site.member.create(WEB.collection, web, site.foreign)
    settings = ResourcePath(CONFIG_MAPS, "default", "settings")
    for name in ("settings", "shared"):
        await site.member.create(settings.collection, config_map(name, {"a": "1"}), site.foreign)
    shared = await site.hub.create(settings.collection, config_map("shared", {"a": "hub"}))

    looked = await promote_web(tmp_path, "--dependencies", "--dry-run")
    assert "would take over configmaps default/settings in west" in looked.output
    assert await site.hub.find(settings) is None
    told = await promote_web(tmp_path, "-d")

    assert told.exit_code == 0, told.output
    created = [each for each in told.output.splitlines() if each.startswith("ResourceTemplate")]
    assert created == [
        "ResourceTemplate (default/settings) is created successfully",
        "ResourceTemplate (default/web) is created successfully",
    ]
    template = await site.hub.get(settings)
    assert annotations_of(template)[stamps.CONFLICT_RESOLUTION] == "overwrite"
    present = await site.hub.get(settings.named("shared"))
    assert resource_version_of(present) == resource_version_of(shared)
    policies = await site.hub.list_objects(ResourcePath(PROPAGATION_POLICIES, "default"))
    assert all(each["spec"]["preserveResourcesOnDeletion"] for each in policies)
    assert len(policies) == 2


async def test_an_interrupted_promotion_can_be_repeated(site: Site, tmp_path: Path) -> None:
    await site.member.create(WEB.collection, deployment("web"), site.foreign)
    assert (await promote_web(tmp_path)).exit_code == 0

    await site.hub.delete(WEB, DeleteOptions(uid_of(await site.hub.get(WEB))))

    again = await promote_web(tmp_path)

    assert again.exit_code == 0, again.output
    assert await site.hub.find(WEB) is not None


async def test_a_promotion_that_would_restart_pods_is_refused_unless_allowed(
    site: Site, tmp_path: Path
) -> None:
    hub = hub_settings(tmp_path / "hub" / "kubeconfig")
    live = await site.member.create(WEB.collection, deployment("web"), site.foreign)
    promotion = plan_promotion(live, CLUSTER)
    prospect = Prospect(WEB, promotion, Effect(("spec.x",), "pods would restart"))
    request = PromoteRequest("deploy", "web", "default", CLUSTER)

    with pytest.raises(CannotPromote, match="pods would restart"):
        await workloads.promote(request, prospect, hub, print)
    assert await site.hub.find(WEB) is None

    await workloads.promote(replace(request, allows_restarts=True), prospect, hub, print)
    assert await site.hub.find(WEB) is not None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nonsense", "web", "-C", CLUSTER), "serves nothing called nonsense"),
        (("deploy", "web", "-C", "nowhere"), 'clusters.cluster.karmada.io "nowhere" not found'),
        (("deploy", "web", "-C", CLUSTER), "holds no credentials"),
    ],
)
async def test_bad_words_are_answered_with_a_sentence(
    site: Site, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    told = await run(tmp_path, promote, *words)

    assert told.exit_code == 1
    assert sentence in told.output
    assert "Traceback" not in told.output


async def test_an_object_that_is_not_there_cannot_be_promoted(site: Site, tmp_path: Path) -> None:
    told = await promote_web(tmp_path)

    assert told.exit_code == 1
    assert 'west: deployments.apps "web" not found' in told.output


async def test_template_and_policy_are_printed_for_kubectl(site: Site, tmp_path: Path) -> None:
    await site.member.create(WEB.collection, deployment("web"), site.foreign)

    told = await promote_web(tmp_path, "-o", "yaml")

    assert told.output.count("---\n") == 2
    assert "kind: PropagationPolicy" in told.output
    assert await site.hub.find(WEB) is None


async def test_resume_lets_deletions_go_on(site: Site, tmp_path: Path) -> None:
    cluster = ResourcePath(CLUSTERS, name=CLUSTER)
    async with executing(site):
        works = [await site.order(work_of(config_map(f"m{number}"))) for number in range(14)]
        for work in works:
            await site.applied(name_of(work))
        assert "are not paused" in (await run(tmp_path, resume, CLUSTER)).output
        for work in works:
            await site.delete_work(name_of(work))

        async def is_pausing() -> bool:
            return is_paused(await site.hub.get(cluster))

        await until(is_pausing)

        told = await run(tmp_path, resume, CLUSTER)

        assert told.exit_code == 0, told.output
        assert "deletions in west go on" in told.output
        for work in works:
            await site.gone(name_of(work))
    left = await site.member.list_objects(ResourcePath(CONFIG_MAPS, "default"))
    assert [name_of(each) for each in left if name_of(each).startswith("m")] == []
