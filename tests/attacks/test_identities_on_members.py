"""An account of the hub reaches a member: it is nobody whom the member knows as somebody else."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio
from tests.attacks.hostile_site import HOSTILE, hostile_in
from tests.component.gateway.fleet_site import Site, fleet_site, grant, reaching, using

from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.membership import manifests
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.hostile import listing

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = "/api/v1/namespaces/tenant-e/configmaps"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
ROBOT = "system:serviceaccount:tenant-e:robot"
THERE = "clusterspace:serviceaccount:tenant-e:robot"
PROXY = "/clusterspaces/hub/apis/cluster.karmada.io/v1alpha1/clusters/{}/proxy"
IDENTITIES = MemberIdentities(plain_accounts=frozenset({"plain"}))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """Both members have an account `tenant-e/robot` of their own, which may read its Secrets.

    Nothing is set but that `plain` keeps the plain names of accounts.
    """
    members = ("east", "plain")
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=members, identities=IDENTITIES) as running:
        for side in (running.hub, *running.members.values()):
            await side.client.create(ResourcePath(NAMESPACES), namespace("tenant-e"))
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
            await side.client.create(ResourcePath(manifests.SERVICE_ACCOUNTS, "tenant-e"), account)
        await grant(running.hub, ROBOT, reaching(), "robot-reaches")
        await grant(running.hub, "root", reaching(), "root-reaches")
        for side in running.members.values():
            await side.client.create(
                ResourcePath(CONFIG_MAPS, "tenant-e"),
                config_map("of-the-member", namespace="tenant-e"),
            )
            await grant(side, ROBOT, using("configmaps"), "robot-of-the-member")
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def robot(site: Site) -> str:
    """The token of the hub's account."""
    path = "/clusterspaces/hub/api/v1/namespaces/tenant-e/serviceaccounts/robot/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await site.ask("POST", path, request)
    assert answer.code == 201, answer.body
    return str(answer.body["status"]["token"])


async def who_am_i(site: Site, cluster: str, token: str, *, by_hub: bool) -> dict[str, Any]:
    start = PROXY.format(cluster) if by_hub else f"/clusterspaces/{cluster}"
    answer = await site.ask("POST", start + WHO, REVIEW, token=token)
    assert answer.code == 201, answer.body
    return answer.body["status"]["userInfo"]


@pytest.mark.parametrize("by_hub", [True, False], ids=["clusters-proxy", "fleet"])
async def test_an_account_of_the_hub_is_not_the_members_own(site: Site, robot: str, by_hub: bool):
    user = await who_am_i(site, "east", robot, by_hub=by_hub)

    assert user["username"] == THERE
    assert user["groups"] == [
        "clusterspace:serviceaccounts",
        "clusterspace:serviceaccounts:tenant-e",
        "system:authenticated",
    ]


async def test_it_has_none_of_the_rights_of_its_namesake(site: Site, robot: str):
    start = PROXY.format("east")
    for path in (
        f"/clusterspaces/east{MAPS}/of-the-member",
        f"{MAPS}/of-the-member.clusterspace.east",
        f"{start}{MAPS}/of-the-member",
    ):
        answer = await site.ask("GET", path, token=robot)

        assert (answer.code, answer.body["reason"]) == (403, "Forbidden"), answer.body
        assert f'User "{THERE}" cannot get' in answer.message


async def test_who_is_bound_under_the_new_name_may(site: Site, robot: str):
    await grant(site.members["east"], THERE, using("configmaps"), "robot-of-the-hub")

    answer = await site.ask("GET", f"/clusterspaces/east{MAPS}/of-the-member", token=robot)

    assert answer.code == 200


async def test_plain_names_are_kept_where_the_operator_says_so(site: Site, robot: str):
    for by_hub in (True, False):
        user = await who_am_i(site, "plain", robot, by_hub=by_hub)
        assert user["username"] == ROBOT
        assert "system:serviceaccounts:tenant-e" in user["groups"]
    answer = await site.ask("GET", f"/clusterspaces/plain{MAPS}/of-the-member", token=robot)
    assert answer.code == 200


async def test_a_master_of_the_hub_is_just_a_user_of_members_unless_it_is_said(site: Site):
    user = await who_am_i(site, "east", "root-token", by_hub=False)
    refused = await site.ask("GET", "/clusterspaces/east/api/v1/nodes")

    assert (user["username"], user["groups"]) == ("root", ["system:authenticated"])
    assert (refused.code, refused.body["reason"]) == (403, "Forbidden")


async def test_nobody_reaches_a_member_under_a_name_of_the_system(site: Site):
    for user, group in (
        ("system:kube-controller-manager", "system:masters"),
        ("system:node:worker-1", "system:nodes"),
        ("system:anonymous", "system:unauthenticated"),
        ("clusterspace:serviceaccount:tenant-e:robot", "dev"),
    ):
        await grant(site.hub, user, reaching(), user.replace(":", "-"))
        headers = (("Impersonate-User", user), ("Impersonate-Group", group))
        for path in (f"/clusterspaces/east{MAPS}", f"{PROXY.format('east')}{MAPS}"):
            answer = await site.ask("GET", path, headers=headers)

            assert answer.code == 403, answer.body
            assert "is not passed on to member clusters" in answer.message


async def test_no_group_of_the_system_or_of_ours_is_heard_by_a_member(site: Site):
    headers = (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "system:masters"),
        ("Impersonate-Group", "system:nodes"),
        ("Impersonate-Group", "clusterspace:serviceaccounts"),
        ("Impersonate-Group", "dev"),
    )
    async with hostile_in(site, listing()) as member:
        for path in (f"/clusterspaces/{HOSTILE}{MAPS}", MAPS):
            await site.ask("GET", path, headers=headers)

    heard = [each for each in member.asked if "configmaps" in each.path]
    assert len(heard) == 2
    for each in heard:
        assert each.header("impersonate-user") == ["jane"]
        assert each.header("impersonate-group") == ["dev"]
