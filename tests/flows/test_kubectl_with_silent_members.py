"""kubectl at a fleet with one member frozen, one refusing and one dead.

Commands that do not need the three are not slowed by them: they are asked for nothing. Commands
that do end with one sentence. A dozen of each runs with the tests, sixty in the long table.
"""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
from tests.component.gateway.fleet_site import ROOT, Site, fake_member, fleet_site, member_at
from tests.component.gateway.silent_members import NOBODY_LISTENS, Frozen, dead_member

from clusterspace.client.requests import ResourcePath
from clusterspace.testing.builders import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    config_map,
    deployment,
    pod,
)
from clusterspace.testing.steps import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl"),
]

MOST_SECONDS = 10.0
SILENT = ("frozen", "refusing", "dead")

NOT_NEEDING = (
    "get deploy",
    "get pods -A",
    "get deploy web -o yaml",
    "get deploy web.clusterspace.east",
    "-n default.clusterspace.east get pods -o wide",
    "logs p.clusterspace.east",
    "exec p.clusterspace.east -- true",
    "scale deploy web.clusterspace.east --replicas=1",
    "describe pod p.clusterspace.east",
    "label cm settings a=b --overwrite",
    "api-resources -o name",
    "explain deployment.spec.replicas",
)
"""The quick dozen."""

MORE_NOT_NEEDING = (
    "version",
    "api-versions",
    "cluster-info",
    "get nodes",
    "get ns",
    "get ns default",
    "get all",
    "get all -A",
    "get events",
    "get cm settings",
    "get cm -l a=b",
    "get cm --field-selector metadata.name=settings",
    "get deploy --sort-by=.metadata.name",
    "get pods --chunk-size=1",
    "get clusters",
    "get deploy web -o jsonpath={.spec.replicas}",
    "describe deploy web",
    "describe node",
    "annotate cm settings a=b --overwrite",
    'patch cm settings -p {"data":{"k":"v"}}',
    "create cm made --from-literal=a=b",
    "delete cm made",
    "create deploy made --image=nginx --dry-run=server",
    "set image deploy/web.clusterspace.east *=nginx:1.28",
    "rollout history deploy/web.clusterspace.east",
    "auth can-i get pods",
    "auth whoami",
    "wait --for=delete cm/none --timeout=5s",
    "diff -f -",
    "top --help",
    "logs -l app=none",
    "get --raw /readyz",
    "get rs,sts,ds,jobs",
    "get svc -o wide",
)

NEEDING = (
    "get deploy web.clusterspace.frozen",
    "logs p.clusterspace.frozen",
    "exec p.clusterspace.frozen -- true",
    "scale deploy web.clusterspace.frozen --replicas=2",
    "-n default.clusterspace.frozen get pods",
    "get deploy web.clusterspace.refusing",
    "exec p.clusterspace.refusing -- true",
    "scale deploy web.clusterspace.refusing --replicas=2",
    "-n default.clusterspace.refusing get pods",
    "get deploy web.clusterspace.dead",
    "logs p.clusterspace.dead",
    "delete pod p.clusterspace.dead",
)
MORE_NEEDING = (
    "describe deploy web.clusterspace.dead",
    "label cm c.clusterspace.dead a=b",
)


@dataclass
class Stage:
    """A fleet in trouble, and how kubectl is run at it."""

    site: Site
    frozen: Frozen
    kubeconfig: Path

    async def kubectl(self, command: str) -> tuple[int, str, str]:
        """Run a command; return how it ended, and what it said."""
        running = await asyncio.create_subprocess_exec(
            "kubectl",
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.kubeconfig.parent / 'cache'}",
            *command.split(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(MOST_SECONDS):
                output, error = await running.communicate()
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()
        return running.returncode or 0, output.decode(), error.decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    directory = tmp_path_factory.mktemp("fleet")
    frozen = Frozen()
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(
            fleet_site(directory, members=(), sims=("east",), list_seconds=2.0)
        )
        for side in (site.hub, site.members["east"]):
            await side.client.create(ResourcePath(CONFIG_MAPS, "default"), config_map("settings"))
            await side.client.create(ResourcePath(DEPLOYMENTS, "default"), deployment("web"))
        east = site.members["east"].client
        await east.create(ResourcePath(PODS, "default"), pod("p"))

        async def runs() -> bool:
            found = await east.get(ResourcePath(PODS, "default", "p"))
            return found.get("status", {}).get("phase") == "Running"

        await until(runs)
        await stack.enter_async_context(fake_member(site, "frozen", frozen))
        await stack.enter_async_context(member_at(site, "refusing", NOBODY_LISTENS))
        await stack.enter_async_context(dead_member(site, "dead"))
        authority = directory / "fleet" / "pki" / "ca.crt"
        settings = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "fleet",
                    "cluster": {"server": site.url, "certificate-authority": str(authority)},
                }
            ],
            "users": [{"name": "root", "user": {"token": ROOT}}],
            "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": "root"}}],
            "current-context": "fleet",
        }
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_bytes(msgspec.yaml.encode(settings))
        directory_of_clusters = site.running.fleet.directory
        for name in SILENT:
            look = directory_of_clusters.troubles.look
            assert await look(name, directory_of_clusters.find_connection, 0.2) is not None
        yield Stage(site, frozen, kubeconfig)


async def run_without_them(stage: Stage, command: str) -> None:
    before = stage.frozen.asked_but_for_looks

    code, output, error = await stage.kubectl(command)

    assert stage.frozen.asked_but_for_looks == before, "a member was waited for in vain"
    # Lists say who is missing; nothing else has a reason to speak of them.
    assert code == 0, (output, error)


async def run_in_need(stage: Stage, command: str) -> None:
    cluster = next(each for each in SILENT if f".clusterspace.{each}" in command)

    code, output, error = await stage.kubectl(command)

    assert (code, output) == (1, ""), (code, output, error)
    sentences = [line for line in error.splitlines() if f"cluster {cluster}: " in line]
    assert len(sentences) == 1, error
    assert len(error.splitlines()) == 1, error


@pytest.mark.parametrize("command", NOT_NEEDING)
async def test_a_command_that_does_not_need_silent_members_is_not_slowed(
    stage: Stage, command: str
):
    await run_without_them(stage, command)


@pytest.mark.parametrize("command", NEEDING)
async def test_a_command_that_needs_a_silent_member_ends_with_one_sentence(
    stage: Stage, command: str
):
    await run_in_need(stage, command)


@pytest.mark.slow
@pytest.mark.parametrize("command", MORE_NOT_NEEDING)
async def test_the_rest_of_a_day_is_not_slowed_by_silent_members(stage: Stage, command: str):
    await run_without_them(stage, command)


@pytest.mark.slow
@pytest.mark.parametrize("command", MORE_NEEDING)
async def test_the_rest_of_a_day_is_one_sentence_about_silent_members(stage: Stage, command: str):
    await run_in_need(stage, command)
