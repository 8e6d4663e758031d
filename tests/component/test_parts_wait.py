"""Parts started before what they need: they say what they wait for, and go on when it is there."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.errors import UnusableKubeconfig
from clusterspace.roots.clients import hub_settings
from clusterspace.roots.controllers import run_controllers
from clusterspace.roots.fleet import running_fleet
from clusterspace.roots.hub import running_hub
from clusterspace.roots.processes import cancelled_by, read_when_there
from clusterspace.roots.settings import FleetSettings, HubSettings
from clusterspace.testing.hubs import free_port
from clusterspace.testing.stage import quick
from clusterspace.testing.steps import stop, until


def what_is_waited_for(logs: Sequence[Mapping[str, object]]) -> list[str]:
    return [str(each["what"]) for each in logs if each["event"] == "waiting"]


async def test_a_hub_that_starts_again_leaves_its_kubeconfig_for_those_who_start_beside_it(
    tmp_path: Path,
) -> None:
    async with running_hub(HubSettings(tmp_path)):
        pass
    kubeconfig = tmp_path / "kubeconfig"
    first = kubeconfig.read_bytes()

    async with running_hub(HubSettings(tmp_path)) as hub:
        assert kubeconfig.read_bytes() != first  # a new port, written when it was ready
        assert read_kubeconfig([kubeconfig]).settings().server == hub.url


async def test_fleet_and_controllers_started_before_the_hub_say_so_and_then_work(
    tmp_path: Path,
) -> None:
    settings = HubSettings(tmp_path / "hub", port=free_port())
    async with running_hub(settings):
        hub = hub_settings(settings.data_dir / "parts" / "fleet" / "kubeconfig")
        works = hub_settings(settings.data_dir / "parts" / "controllers" / "kubeconfig")

    is_up = asyncio.Event()

    async def serve() -> None:
        async with running_fleet(FleetSettings(hub, tmp_path / "fleet")):
            is_up.set()
            await asyncio.Event().wait()

    with capture_logs() as logs:
        fleet = asyncio.create_task(serve())
        controllers = asyncio.create_task(run_controllers(quick(works), SystemClock()))
        try:
            await until(lambda: what_is_waited_for(logs).count("the hub") >= 2)
            assert not any(each.done() for each in (fleet, controllers))

            async with running_hub(settings):
                await until(is_up.is_set)
                await until(lambda: any(each["event"] == "leading" for each in logs))
                await stop(fleet)
                await stop(controllers)
        finally:
            for each in (fleet, controllers):
                await stop(each)
    # Each reason once, however often they tried.
    told = [(each.get("lease"), each["reason"]) for each in logs if each["event"] == "waiting"]
    assert len(told) == len(set(told))


async def test_a_part_waits_for_a_kubeconfig_that_is_not_there_yet(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with capture_logs() as logs:
        reading = asyncio.create_task(read_when_there(lambda: hub_settings(kubeconfig)))
        await until(lambda: bool(what_is_waited_for(logs)))
        async with running_hub(HubSettings(tmp_path / "hub")) as hub:
            kubeconfig.write_bytes(hub.installation.kubeconfig.read_bytes())
            assert (await reading).server == hub.url
    (told,) = (each for each in logs if each["event"] == "waiting")
    assert str(kubeconfig) in str(told["reason"])


async def test_a_kubeconfig_that_says_nothing_is_not_waited_for(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("kind: Config\n")

    with pytest.raises(UnusableKubeconfig, match="no context"):
        await read_when_there(lambda: hub_settings(kubeconfig))


async def test_a_part_that_waits_still_ends_when_it_is_told_to() -> None:
    stopped = asyncio.Event()
    waiting = asyncio.Event()

    async def serve() -> str:
        async with cancelled_by(stopped):
            waiting.set()
            await asyncio.Event().wait()
        return "ended"

    serving = asyncio.create_task(serve())
    await waiting.wait()
    stopped.set()

    assert await serving == "ended"


async def test_a_part_that_is_not_told_to_end_is_not_disturbed() -> None:
    async with cancelled_by(asyncio.Event()):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with cancelled_by(asyncio.Event()):
            raise TimeoutError
