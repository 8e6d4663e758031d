"""Many simulated members in one process."""

from pathlib import Path

from click.testing import CliRunner

from clusterspace.cli.commands.servers import sim
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.kube.objects import Object, name_of, uid_of
from clusterspace.roots.settings import SimSettings
from clusterspace.roots.sim import running_sims
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map
from clusterspace.testing.hubs import client_for_test


async def test_each_of_many_members_is_a_cluster_of_its_own(tmp_path: Path) -> None:
    settings = SimSettings("m", tmp_path, nodes=1)
    async with running_sims(settings, 3) as members:
        assert [each.name for each in members] == ["m-1", "m-2", "m-3"]
        assert len({each.url for each in members}) == 3
        systems: list[str] = []
        for each in members:
            connection = read_kubeconfig((each.kubeconfig,)).settings("", cluster=each.name)
            async with client_for_test(connection) as client:
                system = await client.get(ResourcePath(NAMESPACES, name="kube-system"))
                systems.append(uid_of(system))
                made = config_map(each.name)
                await client.create(ResourcePath(CONFIG_MAPS, "default"), made)
                listed: list[Object] = await client.list_objects(
                    ResourcePath(CONFIG_MAPS, "default")
                )
                kept = [name_of(found) for found in listed if name_of(found).startswith("m-")]
                assert kept == [each.name]
        assert len(set(systems)) == 3


def test_more_ports_than_there_are_are_refused(tmp_path: Path) -> None:
    words = ["m", "--count", "100", "--port", "65500", "--data-dir", str(tmp_path)]

    refused = CliRunner().invoke(sim, words)

    assert refused.exit_code == 2
    assert "100 ports from 65500 on" in refused.output
