"""Pull members in the unified view: asked through the tunnel that their agent keeps."""

from pathlib import Path

from tests.component.gateway.fleet_site import PULL, fleet_site

from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.testing.builders import CONFIG_MAPS
from clusterspace.testing.steps import until


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

        # The same through the hub, as karmadactl asks: the agent keeps a tunnel to it, too.
        path = "/apis/cluster.karmada.io/v1alpha1/clusters/west/proxy/api/v1/namespaces/default"
        request = ApiRequest("GET", f"{path}/configmaps/of-west")

        async def is_found() -> bool:
            answer = await site.hub.client.connection.exchange(request)
            return answer.status == 200 and b"of-west" in answer.body

        await until(is_found)
