"""Pods on their way from Pending to Running to gone, each at its pace."""

from collections.abc import Callable
from typing import Final

import structlog

from clusterspace.aio import backoff
from clusterspace.aio.clocks import Clock
from clusterspace.aio.queues import WorkQueue
from clusterspace.errors import ApiError, Conflict, NotFound
from clusterspace.kube.objects import Object, find_at, uid_of
from clusterspace.sim import pods as steps
from clusterspace.sim.api import NODE, POD, SimApi
from clusterspace.sim.mirror import Key, Mirror, key_of
from clusterspace.sim.nodes import free_address, host_address
from clusterspace.sim.placement import Placement
from clusterspace.sim.pods import Next, Pace, Stage, Step, next_step, stage_of
from clusterspace.sim.scheduling import choose_node

_log = structlog.get_logger(__name__)

RESCHEDULE_SECONDS: Final = 1.0
"""How soon pods that no node took are tried again after something has changed."""


class Lifecycle:
    """Schedules, starts, ends and removes the pods of one simulated cluster."""

    def __init__(  # noqa: PLR0913 - the two who act, the two they look at, and time
        self,
        scheduler: SimApi,
        kubelet: SimApi,
        mirror: Mirror,
        placement: Placement,
        clock: Clock,
        pace: Pace,
    ) -> None:
        self._scheduler = scheduler
        self._kubelet = kubelet
        self._mirror = mirror
        self._clock = clock
        self._pace = pace
        self._placement = placement
        self._queue = WorkQueue[Key](clock, lambda: backoff.exponential(0.05, 5))
        self._since: dict[str, tuple[Stage, float]] = {}
        """Pod UID to its stage, and since when it is there."""
        self._homeless: set[Key] = set()
        """Pods that no node takes now."""
        self._farewells: list[Callable[[Object], None]] = []
        mirror.watch(self._see)

    def on_removal(self, farewell: Callable[[Object], None]) -> None:
        """Call back with every pod that is gone."""
        self._farewells.append(farewell)

    async def run(self) -> None:
        """Work until cancelled."""
        async for key in self._queue:
            try:
                await self._work_on(key)
            finally:
                self._queue.done(key)

    def _see(self, kube_object: Object, is_gone: bool) -> None:
        if kube_object["kind"] == NODE.name:
            self._retry_homeless()
        if kube_object["kind"] != POD.name:
            return
        if not is_gone:
            self._queue.add(key_of(kube_object))
            return
        self._since.pop(uid_of(kube_object), None)
        self._homeless.discard(key_of(kube_object))
        self._retry_homeless()
        for farewell in self._farewells:
            farewell(kube_object)

    def _retry_homeless(self) -> None:
        for key in self._homeless:
            self._queue.add_after(key, RESCHEDULE_SECONDS)

    async def _work_on(self, key: Key) -> None:
        pod = self._mirror.find(key)
        if pod is None:
            self._queue.forget(key)
            return
        wanted = next_step(pod, self._seconds_in_stage(pod), self._pace)
        try:
            await self._take(pod, wanted)
        except ApiError as error:
            if not isinstance(error, (Conflict, NotFound)):
                _log.warning("pod step refused", pod=key, reason=error.message)
            self._queue.retry(key)
            return
        self._queue.forget(key)

    def _seconds_in_stage(self, pod: Object) -> float:
        stage, now = stage_of(pod), self._clock.monotonic()
        held = self._since.get(uid_of(pod))
        if held is None or held[0] is not stage:
            self._since[uid_of(pod)] = (stage, now)
            return 0.0
        return now - held[1]

    async def _take(self, pod: Object, wanted: Next) -> None:
        if wanted.seconds > 0:
            self._queue.add_after(key_of(pod), wanted.seconds)
            return
        now = self._clock.now()
        match wanted.step:
            case Step.BIND:
                await self._bind(pod)
            case Step.START:
                await self._start(pod)
            case Step.MAKE_READY:
                await self._kubelet.update_status(steps.made_ready(pod, now))
            case Step.FINISH:
                ended = steps.finished(pod, steps.exit_code_of(pod), now)
                await self._kubelet.update_status(ended)
            case Step.REMOVE:
                await self._kubelet.delete(pod, grace_seconds=0)
            case None:
                return

    async def _bind(self, pod: Object) -> None:
        choice = choose_node(pod, tuple(self._mirror.all(NODE)), self._placement.used)
        if choice.node:
            self._homeless.discard(key_of(pod))
            await self._scheduler.bind(pod, choice.node)
            return
        self._homeless.add(key_of(pod))
        told = steps.unschedulable(pod, choice.reason, self._clock.now())
        if told["status"] != pod.get("status"):
            await self._scheduler.update_status(told)

    async def _start(self, pod: Object) -> None:
        name = str(find_at(pod, "spec", "nodeName"))
        node = self._mirror.find(Key(NODE.name, "", name))
        if node is None:
            return  # a pod of a node we do not simulate waits, as it would for a dead kubelet
        host = host_address(node)
        address = host
        if not find_at(pod, "spec", "hostNetwork"):
            address = free_address(node, self._placement.on_node(name))
        await self._kubelet.update_status(steps.started(pod, address, host, self._clock.now()))
