"""What the kit gives programs: ports to listen on, and a store that the whole run has."""

import socket
from pathlib import Path

import pytest
from tests.component.hub_wire import HubProcess

from clusterspace.apiserver.store.etcd import messages
from clusterspace.apiserver.store.etcd.client import EtcdClient
from clusterspace.roots.installation import Installation
from clusterspace.testing.etcd import etcd_for_test
from clusterspace.testing.hub_stores import ETCD
from clusterspace.testing.hubs import free_port

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_free_port_is_nobody_elses_before_the_program_listens_on_it() -> None:
    if not RANGE.exists():
        pytest.skip(f"no {RANGE}")
    lowest, highest = map(int, RANGE.read_text().split())
    ports = [free_port() for _ in range(100)]

    assert len(set(ports)) == len(ports)
    assert not [port for port in ports if lowest <= port <= highest]
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


async def test_hubs_that_are_programs_have_the_etcd_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub_dir, etcd_dir = tmp_path / "hub", tmp_path / "etcd"
    hub_dir.mkdir()
    etcd_dir.mkdir()
    async with etcd_for_test(etcd_dir, tls=False) as etcd:
        monkeypatch.setenv(ETCD, etcd.settings.servers[0])
        hub = HubProcess(hub_dir, ("clusterspace", "hub"))
        try:
            hub.wait_ready()
        finally:
            hub.kill()
        client = await EtcdClient.open(etcd.settings)
        try:
            everything = messages.range_request(b"/", b"0")
            found = messages.read_range(await client.read(messages.RANGE, everything))
        finally:
            await client.close()

    assert any(b"/namespaces/kube-system" in each.key for each in found.items)
    assert not Installation(hub_dir).store_file.exists()
