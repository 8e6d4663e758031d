"""Several hubs on one etcd have one authority: it is replaced at one of them, and at the others."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.component.test_several_hubs import encryption, start

from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.roots.installation import Installation
from clusterspace.roots.rotation import Pace, rotate
from clusterspace.testing.builders import NAMESPACES
from clusterspace.testing.etcd import etcd_for_test
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.steps import stop, until

DEFAULT = ResourcePath(NAMESPACES).named("default")


@pytest.mark.slow
async def test_hubs_follow_the_one_at_which_keys_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    file = encryption(tmp_path)
    async with etcd_for_test(tmp_path / "etcd") as etcd, AsyncExitStack() as stack:
        hubs = [await start(tmp_path / name, etcd.settings, file) for name in ("one", "two")]
        for hub in hubs:
            stack.push_async_callback(hub.stack.aclose)
        one, two = (Installation(tmp_path / name) for name in ("one", "two"))
        before, keys = two.load_authorities().key_ids, two.token_keys().by_id.keys()
        failures: list[str] = []

        async def ask_both() -> None:
            while True:
                for hub, installation in zip(hubs, (one, two), strict=True):
                    try:
                        settings = read_kubeconfig([installation.kubeconfig]).settings()
                        async with client_for_test(settings) as client:
                            await client.get(DEFAULT)
                    except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                        failures.append(f"{hub.running.url}: {error!r}")
                await asyncio.sleep(0.1)

        asking = asyncio.create_task(ask_both())
        stack.push_async_callback(stop, asking)

        outcome = await rotate(tmp_path / "one", Pace(4.0, 2.0), lambda _: None)

        assert outcome.is_done, outcome.users

        async def is_same() -> bool:
            names = ("ca.crt", "ca.key", "sa.key", "sa.pub")
            return all(
                (one.pki / name).read_bytes() == (two.pki / name).read_bytes() for name in names
            )

        await until(is_same)
        assert two.load_authorities().key_ids.isdisjoint(before)
        assert two.token_keys().by_id.keys().isdisjoint(keys)
        # A third one that comes now, and one that is started again, have the same.
        await hubs[1].stack.aclose()
        for name in ("two", "three"):
            started = await start(tmp_path / name, etcd.settings, file)
            stack.push_async_callback(started.stack.aclose)
            assert await started.client.get(DEFAULT)
        await stop(asking)
        assert [each for each in failures if hubs[0].running.url in each] == []
