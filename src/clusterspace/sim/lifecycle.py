"""Pods on their way from Pending to Running to gone, each at its pace."""

from collections.abc import Callable
from typing import Final

import structlog

from clusterspace.aio import clocks
from clusterspace.aio.clocks import Clock
from clusterspace.aio.queues import WorkQueue
from clusterspace.errors import ApiError, Conflict, NotFound
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusterspace.sim import pods as steps
from clusterspace.sim.api import (
    DISRUPTION_BUDGET,
    NODE,
    POD,
    Change,
    Key,
    Mirror,
    SimApi,
    key_of,
)
from clusterspace.sim.containers import Programs, never_ends, program_of
from clusterspace.sim.disruption import budget_selector
from clusterspace.sim.images import lacks_image, without_image
from clusterspace.sim.nodes import free_address, has_kubelet, host_address
from clusterspace.sim.pods import BACKING_OFF, End, Pace, Stage, Step, next_step, stage_of
from clusterspace.sim.scheduling import (
    PodsByNode,
    Room,
    choose_node,
    choose_victims,
    priority_of,
    request_of,
)

_log = structlog.get_logger(__name__)

_KILLED: Final = 137
"""The exit code of what ends by SIGKILL."""

RESCHEDULE_SECONDS: Final = 1.0
"""How soon pods that no node took are tried again after something has changed."""


class Lifecycle:
    """Schedules, starts, ends and removes the pods of one simulated cluster."""

    def __init__(
        self,
        scheduler: SimApi,
        kubelet: SimApi,
        mirror: Mirror,
        pods_by_node: PodsByNode,
        programs: Programs,
        clock: Clock,
        pace: Pace,
    ) -> None:
        self._scheduler = scheduler
        self._kubelet = kubelet
        self._mirror = mirror
        self._clock = clock
        self._pace = pace
        self._pods_by_node = pods_by_node
        self._queue = WorkQueue[Key](clock, lambda: clocks.exponential(0.05, 5))
        self._since: dict[str, tuple[Stage, float]] = {}
        """Pod UID to its stage, and since when it is there."""
        self._unschedulable: set[Key] = set()
        """Pods that no node takes now."""
        self._nominated: dict[Key, tuple[str, Object]] = {}
        """Pods for which others leave a node, and that node: it is theirs before others have it."""
        self._programs = programs
        self._restarts: dict[tuple[str, str], float] = {}
        """Pod UID and container to when one that waits is started again."""
        self._on_removal: list[Callable[[Object], None]] = []
        mirror.watch(self._enqueue)
        programs.on_end(self._queue.add)

    def on_removal(self, callback: Callable[[Object], None]) -> None:
        """Call back with every pod that is gone."""
        self._on_removal.append(callback)

    def _enqueue(self, change: Change) -> None:
        if change.kind == POD.name:
            key = key_of(change.latest)
            if change.after is not None:
                self._queue.add(key)
                return
            self._since.pop(uid_of(change.latest), None)
            self._programs.forget(change.latest)
            for container in steps.containers_of(change.latest):
                self._restarts.pop((uid_of(change.latest), str(container["name"])), None)
            self._unschedulable.discard(key)
            self._nominated.pop(key, None)
            for callback in self._on_removal:
                callback(change.latest)
        if change.kind == NODE.name and change.before is None:
            for pod in self._pods_by_node.on_node(name_of(change.latest)):
                self._queue.add(key_of(pod))
        if change.kind in (POD.name, NODE.name):
            # A pod that left made room, and a node that changed may have some.
            for key in self._unschedulable:
                # Whoever others made room for goes first.
                seconds = 0.0 if key in self._nominated else RESCHEDULE_SECONDS
                self._queue.add_after(key, seconds)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.work(self._reconcile)

    async def _reconcile(self, key: Key) -> None:
        pod = self._mirror.find(key)
        if pod is None:
            self._queue.forget(key)
            return
        if find_at(pod, "spec", "nodeName") and self._node_of(pod) is None:
            # Nobody runs it, or stops it: it goes by force, or with its node.
            self._queue.forget(key)
            return
        stage, now = stage_of(pod), self._clock.monotonic()
        entered = self._since.get(uid_of(pod))
        if entered is None or entered[0] is not stage:
            # How long a pod is in a stage is not stored in it: a member that starts anew has no
            # pods, and one that loses this memory waits once more.
            entered = self._since[uid_of(pod)] = (stage, now)
        containers = steps.containers_of(pod)
        ends_itself = any(program_of(each) or never_ends(each) for each in containers)
        upcoming = next_step(pod, now - entered[1], self._pace, ends_itself=ends_itself)
        try:
            if stage in (Stage.RUNNING, Stage.READY) and await self._look_inside(pod):
                pass  # what was seen is written, and brings the pod back here
            elif upcoming.seconds > 0:
                self._queue.add_after(key, upcoming.seconds)
            elif upcoming.step is not None:
                await self._take(pod, upcoming.step)
        except ApiError as error:
            if not isinstance(error, (Conflict, NotFound)):
                _log.warning("pod step refused", pod=key, reason=error.message)
            self._queue.retry(key)
            return
        self._queue.forget(key)

    def _node_of(self, pod: Object) -> Object | None:
        """Return the node of a pod, if somebody is there who runs its pods."""
        name = str(find_at(pod, "spec", "nodeName") or "")
        node = self._mirror.find(Key(NODE.name, "", name))
        return node if node is not None and has_kubelet(node) else None

    async def _schedule(self, pod: Object, now: float) -> None:
        """Put a pod on a node, or make room for it, or say why neither is possible."""
        key, nodes = key_of(pod), tuple(self._mirror.all(NODE))
        used = dict(self._pods_by_node.used)
        for other, (node, nominated) in self._nominated.items():
            if other != key and priority_of(nominated) >= priority_of(pod):
                used[node] = used.get(node, Room()) + request_of(nominated)
        choice = choose_node(pod, nodes, used)
        if choice.node:
            self._unschedulable.discard(key)
            self._nominated.pop(key, None)
            await self._scheduler.bind(pod, choice.node)
            return
        self._unschedulable.add(key)
        changed = steps.unschedulable(pod, choice.reason, now)
        preemption = None
        if key not in self._nominated:
            on_node = self._pods_by_node.on_node
            preemption = choose_victims(pod, nodes, on_node, self._is_protected)
        if preemption is not None:
            self._nominated[key] = (preemption.node, pod)
            changed = steps.nominated(changed, preemption.node)
        if changed["status"] != pod.get("status"):
            await self._scheduler.update_status(changed)
        for victim in () if preemption is None else preemption.victims:
            if not steps.is_ending(victim):
                await self._scheduler.update_status(steps.preempted(victim, now))
                await self._scheduler.delete(victim)

    def _is_protected(self, pod: Object) -> bool:
        """Whether a disruption budget would be broken if a pod left now."""
        for budget in self._mirror.in_namespace(DISRUPTION_BUDGET, namespace_of(pod)):
            spent = (find_at(budget, "status", "disruptionsAllowed") or 0) <= 0
            if spent and budget_selector(budget).matches(labels_of(pod)):
                return True
        return False

    async def _look_inside(self, pod: Object) -> bool:
        """Write down what became of the containers of a pod; say whether there was anything."""
        now, moment = self._clock.now(), self._clock.monotonic()
        containers = {str(each["name"]): each for each in steps.containers_of(pod)}
        ends: dict[str, End] = {}
        due: list[str] = []
        for status in find_at(pod, "status", "containerStatuses") or ():
            name = str(status["name"])
            run = self._programs.find(pod, name)
            if run is None:
                continue
            waiting = find_at(status, "state", "waiting", "reason") == BACKING_OFF
            at = self._restarts.get((uid_of(pod), name), 0.0)
            if run.exit_code is not None and find_at(status, "state", "running"):
                ends[name] = End(run.exit_code, run.ended)
                delay = steps.restart_delay(int(status.get("restartCount") or 0))
                self._restarts[uid_of(pod), name] = moment + delay
            elif waiting and moment >= at:
                due.append(name)
            elif waiting:
                self._queue.add_after(key_of(pod), at - moment)
        ephemeral = steps.missing_ephemeral(pod)
        if not ends and not due and not ephemeral:
            return False
        changed = steps.with_ends(pod, ends, now) if ends else pod
        for name in due:
            changed = steps.with_restart(changed, name, now)
        if ephemeral:
            changed = steps.with_ephemeral(changed, ephemeral, now)
        stored = await self._kubelet.update_status(changed)
        # No await between here and the end: a program that is started is one that runs.
        for status in find_at(stored, "status", "containerStatuses") or ():
            name = str(status["name"])
            if (name in ends or name in due) and find_at(status, "state", "running"):
                self._programs.start(stored, containers[name])
        return True

    async def _take(self, pod: Object, step: Step) -> None:
        now = self._clock.now()
        match step:
            case Step.BIND:
                await self._schedule(pod, now)
            case Step.START:
                node = self._node_of(pod)
                if node is None:
                    return
                if lacks_image(pod):
                    # It stays until its image is another, which is a change of the pod.
                    waiting = without_image(pod, host_address(node), now)
                    if waiting["status"] != pod.get("status"):
                        await self._kubelet.update_status(waiting)
                    return
                address = host = host_address(node)
                if not find_at(pod, "spec", "hostNetwork"):
                    address = free_address(node, self._pods_by_node.on_node(name_of(node)))
                running = steps.started(pod, address, host, now)
                if steps.starts_ready(pod, self._pace):
                    running = steps.made_ready(running, now)
                running = await self._kubelet.update_status(running)
                for container in steps.containers_of(running):
                    self._programs.start(running, container)
            case Step.MAKE_READY:
                await self._kubelet.update_status(steps.made_ready(pod, now))
            case Step.FINISH:
                ended = steps.finished(pod, steps.exit_code_of(pod), now)
                await self._kubelet.update_status(ended)
            case Step.REMOVE:
                if metadata_of(pod).get("finalizers") and not steps.is_finished(pod):
                    # It stays for somebody who wants to know how it ended: killed.
                    pod = await self._kubelet.update_status(steps.finished(pod, _KILLED, now))
                await self._kubelet.delete(pod, grace_seconds=0)
