"""`clusterspace migrate`, typed as people type it, against a running hub and a live member."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner, Result
from tests.component.migration.living import (
    SHOP,
    WEST,
    Site,
    differences,
    living_cluster,
    state_of,
    token_of_looker,
)

from clusterspace.apis.migrations import ITEMS, MIGRATIONS, ORIGINALS_NAMESPACE, ORIGINALS_TYPE
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.cli.commands.migrate import migrate
from clusterspace.cli.commands.workloads import promote
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ListOptions
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    SECRETS,
    namespace,
)
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEB = ResourcePath(DEPLOYMENTS, SHOP, "web")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with living_cluster(tmp_path_factory.mktemp("site")) as site:
        yield site


async def typed(site: Site, *words: str) -> Result:
    hub = ("--kubeconfig", str(site.fleet.directory / "hub" / "kubeconfig"))
    return await asyncio.to_thread(CliRunner().invoke, migrate, [*words, *hub])


async def test_from_a_plan_to_the_end_and_back(site: Site, tmp_path: Path) -> None:
    before = await state_of(site.member, is_whole=False)
    file = tmp_path / "west.yaml"

    planned = await typed(site, "plan", "-C", WEST, "--name", "tour", "-f", str(file))
    assert planned.exit_code == 0, planned.output
    assert "8 of 8 objects of west would be taken" in planned.output
    assert "hunter2" not in file.read_text()
    assert "aHVudGVyMg" not in file.read_text()

    applied = await typed(site, "apply", str(file))
    assert applied.exit_code == 0, applied.output
    assert "migration tour: 8 taken" in applied.output
    again = await typed(site, "apply", "tour")
    assert "migration tour: 8 taken" in again.output, again.output

    listed = await typed(site, "status")
    assert ["tour", WEST, "Applied", "8/8"] in [each.split() for each in listed.output.splitlines()]
    shown = json.loads((await typed(site, "status", "tour", "-o", "json")).output)
    assert {each["state"] for each in shown["items"]} == {"Taken"}

    secrets = await site.hub.list_objects(
        ResourcePath(SECRETS, ORIGINALS_NAMESPACE),
        ListOptions(field_selector=f"type={ORIGINALS_TYPE}"),
    )
    assert secrets
    assert "hunter2" not in str(secrets)

    one = await typed(site, "undo", "tour", "deployment/shop/web")
    assert "migration tour: " in one.output, one.output
    assert not is_managed(await site.member.get(WEB))
    assert await site.hub.find(WEB) is None

    undone = await typed(site, "undo", "tour")
    assert "migration tour: 8 undone" in undone.output, undone.output
    assert differences(before, await state_of(site.member, is_whole=False)) == []

    forgotten = await typed(site, "forget", "tour", "--yes")
    assert forgotten.exit_code == 0, forgotten.output
    for place in (ResourcePath(MIGRATIONS), ResourcePath(ITEMS)):
        assert await site.hub.list_objects(place) == []
    assert (
        await site.hub.list_objects(
            ResourcePath(SECRETS, ORIGINALS_NAMESPACE),
            ListOptions(field_selector=f"type={ORIGINALS_TYPE}"),
        )
        == []
    )


async def test_what_may_not_be_written_is_left_and_the_rest_is_taken(
    site: Site, tmp_path: Path
) -> None:
    member = yaml.safe_load((site.fleet.directory / WEST / "kubeconfig").read_text())
    token = await token_of_looker(site)
    for each in member["users"]:
        each["user"] = {"token": token}
    (tmp_path / "looker").write_text(yaml.safe_dump(member))
    looker = ("--cluster-kubeconfig", str(tmp_path / "looker"))
    file = tmp_path / "half.yaml"

    planned = await typed(site, "plan", "-C", WEST, "--name", "half", "-f", str(file), *looker)

    assert planned.exit_code == 0, planned.output
    words = " ".join(planned.output.split())
    assert "secrets could not be read" in words
    assert "Deployment shop/web Refused the member refuses it: deployments.apps" in words
    applied = await typed(site, "apply", str(file), *looker)
    assert applied.exit_code == 0, applied.output
    assert is_managed(await site.member.get(ResourcePath(CONFIG_MAPS, SHOP, "settings")))
    assert not is_managed(await site.member.get(WEB))
    undone = await typed(site, "undo", "half", *looker)
    assert undone.exit_code == 0, undone.output
    await typed(site, "forget", "half", "--yes")


async def test_a_promoted_object_is_given_back(site: Site) -> None:
    if await site.hub.find(ResourcePath(NAMESPACES, name=SHOP)) is None:
        await site.hub.create(ResourcePath(NAMESPACES), namespace(SHOP))
    before = await state_of(site.member, is_whole=False)
    named = ("deployment", "web", "-n", SHOP, "-C", WEST)
    hub = ("--kubeconfig", str(site.fleet.directory / "hub" / "kubeconfig"))

    async def typed_promote(*words: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, promote, [*named, *words, *hub])

    nothing = await typed_promote("--undo")
    assert "there is nothing to undo" in nothing.output
    promoted = await typed_promote()
    assert promoted.exit_code == 0, promoted.output

    async def is_taken() -> bool:
        return is_managed(await site.member.get(WEB))

    await until(is_taken)

    undone = await typed_promote("--undo")

    assert undone.exit_code == 0, undone.output
    assert "(shop/web) is given back to west" in undone.output
    assert "is deleted" in undone.output
    assert differences(before, await state_of(site.member, is_whole=False)) == []
    assert await site.hub.find(WEB) is None
    assert await site.hub.list_objects(ResourcePath(PROPAGATION_POLICIES)) == []


async def test_a_plan_for_another_cluster_or_hub_leaves_no_trace(
    site: Site, tmp_path: Path
) -> None:
    told = await typed(site, "plan", "-C", WEST, "--name", "stray", "-o", "yaml")
    document = yaml.safe_load(told.stdout)
    for field, sentence in (
        ("hubUID", "the plan was made for hub elsewhere, and this is "),
        ("cluster", "the plan was made for the cluster with UID elsewhere, and these credentials"),
    ):
        stray = {**document, "spec": {**document["spec"]}}
        if field == "hubUID":
            stray["spec"]["hubUID"] = "elsewhere"
        else:
            stray["spec"]["cluster"] = {"name": WEST, "uid": "elsewhere"}
        file = tmp_path / f"{field}.yaml"
        file.write_text(yaml.safe_dump(stray))

        refused = await typed(site, "apply", str(file))

        assert refused.exit_code == 1
        assert sentence in refused.output
    assert await site.hub.find(ResourcePath(MIGRATIONS, name="stray")) is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("apply", "nowhere"), "the hub has no migration nowhere: `clusterspace migrate status`"),
        (("apply", "no/such.yaml"), "there is no file no/such.yaml"),
        (("apply", "."), "there is no file ."),
        (("undo", "nowhere"), "the hub has no migration nowhere"),
        (("pause", "nowhere"), "the hub has no migration nowhere"),
        (("forget", "nowhere", "-y"), "the hub has no migration nowhere"),
        (("plan", "-C", "nowhere"), "`clusterspace clusters` shows those there are"),
        (("plan", "-C", WEST, "--kinds", "spoons"), "--kinds: west serves nothing called spoons"),
        (("plan", "-C", WEST, "--name", "Not a name"), "Invalid value for --name"),
        (("plan", "-C", WEST, "-n", "shpo"), "west has no namespace shpo"),
        (("plan", "-C", WEST, "-l", "a=b=c"), "Invalid value for -l"),
        (("plan", "-C", WEST, "-f", "no/such/plan.yaml"), "there is no directory no/such"),
    ],
)
async def test_what_cannot_be_done_is_said_in_a_sentence(
    site: Site, words: tuple[str, ...], sentence: str
) -> None:
    told = await typed(site, *words)

    assert told.exit_code in (1, 2)
    assert sentence in told.output
    assert "Traceback" not in told.output
