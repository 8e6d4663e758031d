"""Keeps the nodes of a simulated cluster there and alive."""

from clusterspace.aio.clocks import Clock
from clusterspace.errors import AlreadyExists, ApiError, Conflict, NotFound
from clusterspace.kube.objects import Object
from clusterspace.sim.api import NODE, SimApi
from clusterspace.sim.mirror import Key, Mirror
from clusterspace.sim.nodes import (
    HEARTBEAT_SECONDS,
    NodeShape,
    new_lease,
    new_node,
    node_name,
    renewed,
    with_node_status,
    without_taints,
)


class Heartbeats:
    """The kubelets' only other duty: registering nodes and renewing their leases."""

    def __init__(  # noqa: PLR0913 - what a cluster's nodes are, named once
        self,
        api: SimApi,
        mirror: Mirror,
        clock: Clock,
        *,
        cluster: str,
        count: int,
        shape: NodeShape,
    ) -> None:
        self._api = api
        self._mirror = mirror
        self._clock = clock
        self._cluster = cluster
        self._count = count
        self._shape = shape
        self._leases: dict[int, Object] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self.beat()
            await self._clock.sleep(HEARTBEAT_SECONDS)

    async def beat(self) -> None:
        """Register what is missing and renew every lease."""
        for index in range(self._count):
            node = self._mirror.find(Key(NODE.name, "", node_name(self._cluster, index)))
            if node is None:
                node = await self._register(index)
            await self._renew(index, node)

    async def _register(self, index: int) -> Object:
        created = await self._api.create(new_node(self._cluster, index, self._shape))
        told = with_node_status(created, index, self._shape, self._clock.now())
        healthy = without_taints(await self._api.update_status(told))
        return await self._api.update(healthy)

    async def _renew(self, index: int, node: Object) -> None:
        held = self._leases.get(index)
        try:
            if held is None:
                lease = await self._api.create(new_lease(node, self._clock.now()))
            else:
                lease = await self._api.update(renewed(held, self._clock.now()))
        except (AlreadyExists, Conflict, NotFound) as error:
            await self._start_over(index, error)
            return
        self._leases[index] = lease

    async def _start_over(self, index: int, error: ApiError) -> None:
        """Somebody deleted or changed the lease: the next beat makes a new one."""
        held = self._leases.pop(index, None)
        if held is not None and not isinstance(error, NotFound):
            await self._api.delete(held)
