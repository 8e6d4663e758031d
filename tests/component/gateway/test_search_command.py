"""`clusterspace search` against a running fleet: SQL over what the caller may list."""

import asyncio
import csv
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import pytest
import pytest_asyncio
from click.testing import CliRunner
from click.testing import Result as Invoked
from tests.component.gateway.fleet_site import (
    ROOT,
    Site,
    fleet_site,
    grant,
    member_at,
    reaching,
    using,
)
from tests.component.gateway.silent_members import NOBODY_LISTENS

from clusterspace.cli.commands.search import search
from clusterspace.cli.output import ExitCode
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import DeleteOptions
from clusterspace.errors import UnusableStatement
from clusterspace.kube.objects import Object, uid_of, with_metadata
from clusterspace.roots.search import Found, Search, Selection
from clusterspace.roots.sql import Bounds, Row
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    config_map,
    deployment,
    namespace,
    pod,
    secret,
)
from clusterspace.testing.faults import fault_proxy, status_reply
from clusterspace.testing.hostile import hostile_member, listing
from clusterspace.testing.stage import Side
from clusterspace.testing.steps import edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

JANE = "jane-token"


async def fill(side: Side, image: str, phase: str) -> None:
    await side.client.create(ResourcePath(NAMESPACES), namespace("shop"))
    for name in ("web", "db"):
        place = ResourcePath(PODS, "shop")
        made = await side.client.create(place, pod(name, namespace="shop", image=f"{name}:{image}"))
        started = {**made, "status": {**made.get("status", {}), "phase": phase}}
        await side.client.update(place.named(name).with_subresource("status"), started)
    await side.client.create(ResourcePath(DEPLOYMENTS, "shop"), deployment("web", namespace="shop"))
    await side.client.create(ResourcePath(SECRETS, "shop"), secret("token", namespace="shop"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Site]:
    """East runs, west is pending; jane may list pods in both, and secrets nowhere."""
    directory = tmp_path_factory.mktemp("fleet")
    async with fleet_site(directory, members=("east", "west")) as running:
        await fill(running.members["east"], "v2", "Running")
        await fill(running.members["west"], "v1", "Pending")
        await grant(running.hub, "jane", reaching(), "jane-reaches")
        for name, side in (("hub", running.hub), *running.members.items()):
            await grant(side, "jane", using("pods"), f"jane-uses-{name}")
        yield running


async def ask(site: Site, *words: str, token: str = ROOT) -> Invoked:
    authority = site.directory / site.data_name / "pki" / "ca.crt"
    place = {"server": site.url, "certificate-authority": str(authority)}
    document = {
        "clusters": [{"name": "fleet", "cluster": place}],
        "users": [{"name": "somebody", "user": {"token": token}}],
        "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": "somebody"}}],
    }
    kubeconfig = site.directory / f"{token}.kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    arguments = [*words, "--kubeconfig", str(kubeconfig)]
    return await asyncio.to_thread(CliRunner().invoke, search, arguments)


@contextmanager
def opened(
    site: Site, statement: str, *, token: str = ROOT, selection: Selection | None = None
) -> Generator[Search]:
    client = type(site.hub.client)(site.connection(token))
    made = Search(client, statement, selection or Selection(), Bounds())
    try:
        yield made
    finally:
        made.close()


async def rows(
    site: Site, statement: str, *, token: str = ROOT, selection: Selection | None = None
) -> tuple[Row, ...]:
    with opened(site, statement, token=token, selection=selection) as made:
        found = await made.run()
    assert found.is_complete, found.warnings
    return found.result.rows


async def test_a_question_about_all_clusters_is_one_statement(site: Site):
    shown = await ask(
        site,
        "select cluster, namespace, name, json_extract(object, '$.status.phase') as phase "
        "from pods where phase <> 'Running' order by cluster, name",
    )

    assert shown.exit_code == 0, shown.output
    assert [line.split() for line in shown.output.splitlines()] == [
        ["CLUSTER", "NAMESPACE", "NAME", "PHASE"],
        ["west", "shop", "db", "Pending"],
        ["west", "shop", "web", "Pending"],
    ]


async def test_columns_that_kubectl_prints_can_be_asked_for(site: Site):
    found = await rows(site, "select cluster, name, status, ready from pods order by 1, 2")

    assert found[0] == ("east", "db", "Running", "0/1")
    assert found[-1] == ("west", "web", "Pending", "0/1")


async def test_kinds_are_joined_grouped_and_named_with_their_group(site: Site):
    joined = await rows(
        site,
        "select pods.cluster, count(*) from pods join deployments_apps d on d.cluster = "
        "pods.cluster and d.name = pods.name group by pods.cluster order by 1",
    )
    clusters = await rows(site, "select name from clusters order by name")
    quoted = await rows(site, 'select distinct name from "deployments.apps"')
    short = await rows(site, "select distinct kind from (select object->>'kind' kind from deploy)")

    assert joined == (("east", 1), ("west", 1))
    assert clusters == (("east",), ("west",))
    assert quoted == (("web",),)
    assert short == (("Deployment",),)


async def test_the_hub_is_a_cluster_too(site: Site):
    found = await rows(site, "select distinct cluster from namespaces where name = 'default'")

    assert sorted(str(each[0]) for each in found) == ["east", "karmada", "west"]


async def test_what_is_loaded_can_be_narrowed(site: Site):
    statement = "select cluster, name from pods order by 1, 2"
    of_west = Selection("shop", "clusterspace.io/cluster=west")
    pending = Selection(field_selector="status.phase!=Running")

    assert await rows(site, statement, selection=of_west) == (("west", "db"), ("west", "web"))
    assert await rows(site, statement, selection=pending) == (("west", "db"), ("west", "web"))
    assert await rows(site, statement, selection=Selection("none")) == ()


async def test_programs_get_json_yaml_and_csv(site: Site):
    statement = "select cluster, name, name, 1.5 as half, null as none from pods limit 1"
    of_json = await ask(site, statement, "-o", "json", "-l", "clusterspace.io/cluster=east")
    of_yaml = await ask(site, statement, "-o", "yaml", "-l", "clusterspace.io/cluster=east")
    of_csv = await ask(site, "pods", "-o", "csv", "-n", "shop")
    nothing = await ask(site, "pods", "-n", "none")

    row = {"cluster": "east", "name": "db", "name_2": "db", "half": 1.5, "none": None}
    assert json.loads(of_json.output) == {"rows": [row]}
    assert "- cluster: east\n  name: db\n" in of_yaml.output
    head, *lines = csv.reader(of_csv.output.splitlines())
    assert head[:4] == ["cluster", "namespace", "name", "ready"]
    assert "object" not in head
    assert sorted(each[0] for each in lines) == ["east", "east", "west", "west"]
    assert nothing.output == "no rows\n"


@pytest.mark.parametrize(
    "statement",
    ["select * from riddles", "riddle", "select x from pods", "delete from pods", "select 'x"],
)
async def test_what_cannot_be_asked_is_refused_in_a_sentence(site: Site, statement: str):
    refused = await ask(site, statement)

    assert refused.exit_code == ExitCode.FAILED
    assert refused.output.startswith("Error: ")
    assert len(refused.output.splitlines()) == 1


# -- whose rights ----------------------------------------------------------------------------------


async def test_who_may_not_list_a_kind_finds_none_of_it_in_any_way(site: Site):
    for statement in (
        "select * from secrets",
        'select * from "Secrets"',
        "select * from secrets_core",
        "select name from pods where exists (select 1 from secrets)",
        "select name from pods union select object from secrets",
        "with s as (select * from secret) select count(*) from s",
    ):
        refused = await ask(site, statement, token=JANE)

        assert refused.exit_code == ExitCode.FAILED
        assert "secrets is forbidden" in refused.output
        assert "token" not in refused.output.replace("jane-token", "")
    assert len(await rows(site, "select * from secrets where name = 'token'")) == 2


async def test_a_cluster_that_refuses_is_named_and_the_exit_code_says_so(site: Site):
    side = site.members["east"]
    await grant(side, "jane", using("configmaps"), "jane-uses-maps-of-east")
    await grant(site.hub, "jane", using("configmaps"), "jane-uses-maps-of-hub")
    await side.client.create(ResourcePath(CONFIG_MAPS, "shop"), config_map("a", namespace="shop"))

    shown = await ask(site, "select cluster, name from configmaps where name = 'a'", token=JANE)
    read = await ask(site, "select name from cm where name = 'a'", "-o", "json", token=JANE)

    assert shown.exit_code == read.exit_code == ExitCode.INCOMPLETE
    assert "Warning: the answer is incomplete: 1 of 3 clusters not allowed: west" in shown.output
    assert "east     a" in shown.output
    document = json.loads(read.output.partition("Warning")[0])
    assert document["rows"] == [{"name": "a"}]
    assert "west" in document["incomplete"][0]


async def test_a_cluster_that_does_not_answer_is_named(site: Site):
    async with member_at(site, "lost", NOBODY_LISTENS):
        shown = await ask(site, "select count(*) as pods from pods where namespace = 'shop'")

    assert shown.exit_code == ExitCode.INCOMPLETE
    assert "1 of 4 clusters unreachable: lost" in shown.output
    assert "\n4   \n" in shown.output or "\n4\n" in shown.output


async def test_what_a_member_makes_up_neither_breaks_a_row_nor_reaches_a_terminal(site: Site):
    made_up: list[Object] = [
        {
            "metadata": {"name": "x", "namespace": "shop", "resourceVersion": "1", "labels": 7},
            "spec": "nothing",
            "status": {"phase": "\x1b[2J'; drop table pods; --", "containerStatuses": {"a": 1}},
        },
        {"metadata": {"name": "=cmd()", "resourceVersion": "1", "annotations": ["x"]}},
    ]
    async with (
        hostile_member(listing(*made_up)) as member,
        member_at(site, "hostile", member.url),
    ):
        shown = await ask(
            site,
            "select cluster, name, object->>'$.status.phase' phase from pods "
            "where cluster = 'hostile' order by name",
        )
        of_csv = await ask(site, "select name from pods where cluster = 'hostile'", "-o", "csv")

    assert "\x1b" not in shown.output
    assert "drop table pods" in shown.output
    assert "'=cmd()" in of_csv.output.splitlines()


async def test_an_endless_statement_is_ended(site: Site):
    endless = "with recursive n(i) as (select 1 union all select i+1 from n) select sum(i) from n"

    ended = await ask(site, endless, "--timeout", "0.2")

    assert ended.exit_code == ExitCode.FAILED
    assert "ended after 0.2s" in ended.output


async def test_more_than_the_memory_is_refused(site: Site):
    with opened(site, "select * from pods") as made:
        made.bounds = Bounds(table_bytes=1024)

        with pytest.raises(UnusableStatement, match="select fewer"):
            await made.run()


# -- over time -------------------------------------------------------------------------------------


class Screen:
    """What `--watch` was told to show."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self.warnings: list[str] = []

    def show(self, found: Found) -> None:
        self.found.append(found)

    @property
    def rows(self) -> list[Row]:
        return list(self.found[-1].result.rows) if self.found else []

    async def until(self, wanted: list[Row]) -> None:
        async def is_so() -> bool:
            return self.rows == wanted

        await until(is_so)


@asynccontextmanager
async def following(site: Site, statement: str) -> AsyncGenerator[Screen]:
    screen = Screen()
    with opened(site, statement) as made:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(made.follow(screen.show, screen.warnings.append))
            yield screen
            task.cancel()


async def test_rows_come_and_go_while_they_are_watched(site: Site):
    west = site.members["west"].client
    place = ResourcePath(PODS, "shop", "late")
    statement = "select cluster, name, status from pods where name = 'late' order by cluster"
    async with following(site, statement) as screen:
        await screen.until([])
        made = await west.create(place.collection, pod("late", namespace="shop"))
        await screen.until([("west", "late", "Pending")])

        def failed(kube_object: Object) -> Object:
            return {**kube_object, "status": {**kube_object["status"], "phase": "Failed"}}

        await edit(west, place.with_subresource("status"), failed)
        await screen.until([("west", "late", "Failed")])
        await west.delete(place, DeleteOptions(uid_of(made), grace_seconds=0))
        await screen.until([])


async def test_a_member_that_falls_silent_takes_no_row_away_and_one_that_returns_adds_its_own(
    site: Site,
):
    statement = "select cluster, name from pods where name = 'web' order by cluster"
    whole: list[Row] = [("east", "web"), ("far", "web"), ("west", "web")]
    upstream = site.members["east"].client.connection
    async with fault_proxy(upstream) as proxy, member_at(site, "far", proxy.settings.server):
        proxy.inject(status_reply(503, "ServiceUnavailable"), times=None)
        async with following(site, statement) as screen:
            await screen.until([("east", "web"), ("west", "web")])
            assert not screen.found[-1].is_complete

            proxy.heal()
            await screen.until(whole)
            shown = len(screen.found)

            proxy.inject(status_reply(503, "ServiceUnavailable"), times=None)
            proxy.cut()
            place = ResourcePath(PODS, "shop", "web")
            west = site.members["west"].client
            await edit(west, place, lambda found: with_metadata(found, annotations={"seen": "1"}))

            async def was_run_again() -> bool:
                return len(screen.found) > shown

            await until(was_run_again)
            assert screen.rows == whole
