"""What the agent of a MemberCluster may do on the hub is what its page says, and nothing else."""

from collections.abc import AsyncGenerator, Iterable
from pathlib import Path

import pytest
from tests.component.invited_members import Invited

from clusterspace.apis.clusters import WORKS, execution_namespace
from clusterspace.apis.member_clusters import INTERNAL_MEMBER_CLUSTERS, member_namespace
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.errors import Forbidden
from clusterspace.fleet.membership.manifests import SECRETS, cluster_path, lease_path
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.stage import running_fleet

REVIEWS = GroupVersionResource("authorization.k8s.io", "v1", "selfsubjectrulesreviews")
PAGE = Path(__file__).parents[2] / "docs" / "member-clusters.md"
ELSEWHERE = ("default", "kube-system", "fleet-system", "fleet-member-east", "karmada-es-east")


@pytest.fixture
async def invited(tmp_path: Path) -> AsyncGenerator[Invited]:
    async with running_fleet(tmp_path) as running:
        yield Invited(running)


def rights_on_page() -> dict[str, set[tuple[str, ...]]]:
    """Read the table of the page: by namespace, each group, resource, verb and name."""
    heading = "### What the agent may do on the hub"
    section = PAGE.read_text().split(heading)[1].split("\n#")[0]
    rights: dict[str, set[tuple[str, ...]]] = {}
    for line in section.splitlines():
        cells = [each.strip().replace("`", "") for each in line.strip("|").split("|")]
        if len(cells) != 6 or cells[0] in ("in", "---"):
            continue
        where, group, resources, verbs, name, _why = cells
        inside = where.replace("NAME", "west").replace("the whole hub", "")
        about = name.replace("NAME", "west").replace("any", "")
        rights.setdefault(inside, set()).update(
            ("" if group == "core" else group, resource, verb, about)
            for resource in resources.split(", ")
            for verb in verbs.split(", ")
        )
    return rights


def each_right(rules: Iterable[Object]) -> set[tuple[str, ...]]:
    return {
        (group, resource, verb, name)
        for rule in rules
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for verb in rule["verbs"]
        for name in rule.get("resourceNames") or ("",)
    }


async def rights_in(client: Client, namespace: str) -> set[tuple[str, ...]]:
    """Ask the hub what somebody may do in a namespace, the whole hub included."""
    review: Object = {
        "apiVersion": REVIEWS.api_version,
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    answer = await client.create(ResourcePath(REVIEWS), review)
    assert not answer["status"]["incomplete"]
    return each_right(answer["status"]["resourceRules"])


async def test_an_agent_may_do_what_its_page_lists_and_nothing_else(invited: Invited) -> None:
    member = await invited.fleet.add_member("west")
    await invited.invite()
    written = rights_on_page()
    everywhere = written.pop("")
    async with (
        invited.controllers(),
        invited.agent(member),
        client_for_test(await invited.identity_settings("west")) as agent,
        client_for_test(await invited.identity_settings("nobody")) as stranger,
    ):
        await invited.until_joined()
        assert set(written) == {
            member_namespace("west"),
            execution_namespace("west"),
            "karmada-cluster",
        }
        for namespace in (*written, *ELSEWHERE):
            common = await rights_in(stranger, namespace)
            own = await rights_in(agent, namespace) - common
            assert own == everywhere | written.get(namespace, set()), namespace


async def test_an_agent_is_refused_what_is_another_members_or_the_hubs(invited: Invited) -> None:
    members = {name: await invited.fleet.add_member(name) for name in ("west", "east")}
    for name in members:
        await invited.invite(name)
    async with (
        invited.controllers(),
        invited.agent(members["west"], "west"),
        invited.agent(members["east"], "east"),
        client_for_test(await invited.identity_settings("west")) as agent,
    ):
        for name in members:
            await invited.until_joined(name)
        for place in (
            ResourcePath(INTERNAL_MEMBER_CLUSTERS, member_namespace("east")),
            ResourcePath(WORKS, execution_namespace("east")),
            ResourcePath(WORKS),
            ResourcePath(SECRETS, "karmada-cluster"),
            cluster_path("west").collection,
        ):
            with pytest.raises(Forbidden):
                await agent.list_objects(place)
        for place in (cluster_path("east"), lease_path("east")):
            with pytest.raises(Forbidden):
                await agent.get(place)
        assert await agent.get(cluster_path("west"))
        assert await agent.get(lease_path("west"))
