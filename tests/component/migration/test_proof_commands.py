"""`clusterspace migrate snapshot` and `prove`, typed as people type them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner, Result
from tests.component.migration.living import SHOP, WEST, Site, living_cluster

from clusterspace.apis.migrations import ORIGINALS_NAMESPACE
from clusterspace.cli.commands.migrate import migrate
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions, ListOptions
from clusterspace.fleet.migration import kept_snapshots
from clusterspace.fleet.migration.kept_snapshots import SNAPSHOT_TYPE, find_kept, keep_snapshot
from clusterspace.kube.objects import name_of, uid_of
from clusterspace.testing.builders import PODS, SECRETS
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with living_cluster(tmp_path_factory.mktemp("site")) as site:
        yield site


async def typed(site: Site, *words: str) -> Result:
    hub = ("--kubeconfig", str(site.fleet.directory / "hub" / "kubeconfig"))
    return await asyncio.to_thread(CliRunner().invoke, migrate, [*words, *hub])


async def test_a_migration_is_proved_by_what_its_application_kept(
    site: Site, tmp_path: Path
) -> None:
    before, plan = tmp_path / "before.json", tmp_path / "west.yaml"
    taken = await typed(site, "snapshot", "-C", WEST, "-n", SHOP)
    assert taken.exit_code == 0, taken.output
    before.write_text(taken.stdout)
    assert "hunter2" not in taken.stdout
    assert "objects of west recorded" in taken.stderr
    await typed(site, "plan", "-C", WEST, "--name", "proved", "-f", str(plan))
    applied = await typed(site, "apply", str(plan))
    assert applied.exit_code == 0, applied.output

    shown = await typed(site, "prove", "proved")
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("Nothing changed: ")
    by_file = json.loads(
        (await typed(site, "prove", "-C", WEST, "--before", str(before), "-o", "json")).output
    )
    assert by_file["isUnchanged"] is True
    assert by_file["findings"] == []
    page = await typed(site, "prove", "proved", "-o", "html")
    assert page.output.startswith("<!DOCTYPE html>")

    victim = (await site.member.list_objects(ResourcePath(PODS, SHOP)))[0]
    place = ResourcePath(PODS, SHOP, name_of(victim))
    await site.member.delete(place, DeleteOptions(uid_of(victim), grace_seconds=0))
    await until(lambda: _has_pods(site, 2, without=name_of(victim)))
    noticed = await typed(site, "prove", "proved")
    assert noticed.exit_code == 1
    first, _, rest = noticed.output.partition("\n")
    assert first.startswith("Something changed: ")
    assert f"Pod {SHOP}/{name_of(victim)}" in rest

    kept = ListOptions(field_selector=f"type={SNAPSHOT_TYPE}")
    secrets = ResourcePath(SECRETS, ORIGINALS_NAMESPACE)
    assert await site.hub.list_objects(secrets, kept)
    await typed(site, "undo", "proved")
    forgotten = await typed(site, "forget", "proved", "-y")
    assert forgotten.exit_code == 0, forgotten.output
    assert await site.hub.list_objects(secrets, kept) == []


async def _has_pods(site: Site, count: int, without: str) -> bool:
    names = [name_of(each) for each in await site.member.list_objects(ResourcePath(PODS, SHOP))]
    return len(names) == count and without not in names


async def test_what_is_asked_wrongly_is_said(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    file.write_text("kind: List")
    for words, sentence in (
        (("prove",), "Name a MIGRATION, or a cluster"),
        (("prove", "-C", WEST), "Name a MIGRATION, or a cluster"),
        (("prove", "unheard-of"), "unheard-of"),
        (("prove", "-C", WEST, "--before", str(file)), "not a whole snapshot"),
        (("snapshot", "-C", WEST, "-n", "shop,shpo"), "there is no namespace shpo"),
        (("snapshot", "-C", "east"), "east"),
    ):
        answer = await typed(site, *words)
        said = f"{answer.output} {answer.exception}"
        assert answer.exit_code != 0, words
        assert sentence in said, (words, said)


async def test_a_large_snapshot_is_kept_in_parts_and_the_first_one_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept_snapshots, "_PART_BYTES", 300)
    taken = await typed(site, "snapshot", "-C", WEST)
    first = kept_snapshots.decode(taken.stdout.encode())
    taken = await typed(site, "snapshot", "-C", WEST, "-n", SHOP)
    fewer = kept_snapshots.decode(taken.stdout.encode())

    await keep_snapshot(site.hub, "large", first)
    await keep_snapshot(site.hub, "large", fewer)

    assert await find_kept(site.hub, "large") == first
    assert await find_kept(site.hub, "small") is None
