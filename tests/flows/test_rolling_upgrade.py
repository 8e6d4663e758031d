"""The pods of deploy/kubernetes/ha.yaml are replaced one by one, as a StatefulSet does it.

A load balancer before them asks for `/readyz`, as a Service does by the kubelet; kubectl and the
Kubernetes client for Python work all the time, with no other retries than their own.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.component.deployed_parts import ReplicatedPod
from tests.component.test_several_hubs import encryption
from tests.flows.busy_clients import readers, start_all, until_all_went_on, writers

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.roots.installation import write_pair
from clusterspace.roots.kubeconfigs import merged_kubeconfig
from clusterspace.roots.local.load_balancer import LoadBalancer
from clusterspace.testing.etcd import etcd_for_test
from clusterspace.testing.hubs import free_port
from clusterspace.testing.steps import stop


@pytest.mark.slow
async def test_a_rolling_upgrade_costs_nobody_a_request(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        (tmp_path / "etcd").mkdir()
        etcd = await stack.enter_async_context(etcd_for_test(tmp_path / "etcd", members=3))
        addresses = {part: f"127.0.0.1:{free_port()}" for part in ("hub", "fleet")}
        make_secrets(tmp_path, etcd.settings)
        given = {
            "--etcd-servers": ",".join(etcd.settings.servers),
            "--shutdown-delay-duration": "3",
            **{f"{part} --control-plane-endpoint": each for part, each in addresses.items()},
        }
        pods = [ReplicatedPod(tmp_path, number, given) for number in range(3)]
        for part, address in addresses.items():
            ports = {pod.name: pod.ports[part] for pod in pods}
            balancer = LoadBalancer(int(address.rpartition(":")[2]), ports, SystemClock())
            running = asyncio.create_task(balancer.run())
            stack.push_async_callback(stop, running)
        for pod in pods:
            stack.push_async_callback(asyncio.to_thread, pod.stop)
            await asyncio.to_thread(pod.start)
        # Whichever pod it is taken from, it leads to all of them.
        kubeconfig = tmp_path / "kubeconfig"
        files = [pods[1].volume / f"{part}/kubeconfig" for part in ("fleet", "hub")]
        kubeconfig.write_bytes(merged_kubeconfig([each.read_bytes() for each in files]))
        works = {**readers(kubeconfig), **writers(kubeconfig)}
        workers = await asyncio.to_thread(start_all, works)
        for pod in reversed(pods):
            await asyncio.to_thread(pod.stop)
            await asyncio.to_thread(pod.start)
            await asyncio.to_thread(until_all_went_on, workers)
        for each in workers.values():
            await asyncio.to_thread(each.stop)

        failures = {name: each.failures for name, each in workers.items()}
        assert failures == {each: [] for each in workers}


def make_secrets(directory: Path, etcd) -> None:
    """Write the Secrets of ha.yaml as the directories that they are in a container."""
    for name in ("clusterspace-etcd", "clusterspace-encryption", "clusterspace-fleet"):
        (directory / name).mkdir()
    (directory / "clusterspace-etcd/ca.crt").write_bytes(etcd.ca_file.read_bytes())
    (directory / "clusterspace-etcd/tls.crt").write_bytes(etcd.cert_file.read_bytes())
    (directory / "clusterspace-etcd/tls.key").write_bytes(etcd.key_file.read_bytes())
    sealed = encryption(directory)
    sealed.rename(directory / "clusterspace-encryption/encryption.yaml")
    authority = Authority.create("clusterspace-fleet", SystemClock().now())
    home = directory / "clusterspace-fleet"
    write_pair(authority.pair, home / "ca.crt", home / "ca.key")
