"""Certificate requests do not stay for ever."""

from tests.unit.apiserver.identity.certificates.requested import agent_request
from tests.unit.apiserver.identity.subjects import OPERATOR, MemoryHub

from clusterspace.apiserver.identity.certificates.signer import forget_old_requests

GROUP, PLURAL = "certificates.k8s.io", "certificatesigningrequests"


async def test_settled_requests_stay_an_hour_and_waiting_ones_a_day():
    hub = MemoryHub()
    settled = await hub.create(GROUP, PLURAL, agent_request("settled"), OPERATOR)
    await hub.create(GROUP, PLURAL, agent_request("waiting"), OPERATOR)
    denied = {"type": "Denied", "status": "True", "lastUpdateTime": hub.state.timestamp()}
    await hub.edit(GROUP, PLURAL, settled, status={"conditions": [denied]})
    assert await forget_old_requests(hub.state) == 0

    await hub.clock.advance(3600)
    assert await forget_old_requests(hub.state) == 1
    assert await hub.find(GROUP, PLURAL, "", "waiting") is not None

    await hub.clock.advance(23 * 3600)
    assert await forget_old_requests(hub.state) == 1
