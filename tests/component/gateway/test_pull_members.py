"""Pull members in the unified view: asked through the tunnel that their agent keeps."""

from pathlib import Path

from tests.component.gateway.fleet_site import PULL, fleet_site

from clusterspace.client.requests import ResourcePath
from clusterspace.testing.builders import CONFIG_MAPS


async def test_members_behind_agents_are_listed(tmp_path: Path):
    async with fleet_site(tmp_path, mode=PULL) as site:
        for name, side in site.members.items():
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"of-{name}"}}
            await side.client.create(ResourcePath(CONFIG_MAPS, "default"), made)

        listed = await site.ask("GET", "/api/v1/namespaces/default/configmaps")

        assert listed.names_with("of-") == [
            "of-east.clusterspace.east",
            "of-west.clusterspace.west",
        ]
        assert listed.warning == ""
