"""FederatedHPA: the load of a workload over all its clusters to the replicas of its template.

Every fifteen seconds the pods of the target are read in each cluster that its binding names, and
what they use is compared with the goals. The conditions, reasons and events are Kubernetes' and
Karmada's. Pods of a cluster that does not answer count as pods of which nothing is known.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, cast

import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.apis.autoscalers import FEDERATED_HPAS, completed_federated_hpa
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.stamps import binding_name
from clusterspace.apis.works import RESOURCE_BINDINGS, clusters_of, template_of
from clusterspace.client.discovery import Discovery
from clusterspace.client.requests import ResourcePath, key_of
from clusterspace.client.resources import ClusterClient, PatchType
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    more_than_status_changed,
    nothing,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches
from clusterspace.errors import (
    ApiError,
    MalformedObject,
    MalformedSelector,
    NotFound,
    NotServed,
)
from clusterspace.fleet.autoscaling.measures import (
    PODS,
    MemberPods,
    Reach,
    look_at,
    read_usage,
    requests_in,
)
from clusterspace.fleet.autoscaling.metrics import (
    CannotScale,
    Measured,
    Target,
    by_external_metric,
    by_object_metric,
    by_pods_metric,
    by_usage,
    unmeasured,
)
from clusterspace.kube.autoscaling import (
    SYNC_SECONDS,
    ScaleHistory,
)
from clusterspace.kube.conditions import FALSE, TRUE, Condition, set_condition
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    resource_version_of,
    uid_of,
)
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.selectors import label_selector_of
from clusterspace.kube.times import format_time

_log = structlog.get_logger(__name__)

_SCALE: Final = "scale"
_POD_SPEC: Final = ("spec", "template", "spec")


def _target_of(autoscaler: Object) -> tuple[GroupVersionKind, str]:
    reference: Object = find_at(autoscaler, "spec", "scaleTargetRef") or {}
    kind = GroupVersionKind.of(
        str(reference.get("apiVersion") or ""), str(reference.get("kind") or "")
    )
    return kind, str(reference.get("name") or "")


class FederatedHpaController(Reconciler):
    """Gives templates the replicas that their pods' load asks for, over all clusters."""

    name = "federated-hpa"
    workers = 4

    def __init__(
        self,
        hub: ClusterClient,
        caches: HubCaches,
        events: EventRecorder,
        reach: Reach,
        clock: Clock,
        sync_seconds: float = SYNC_SECONDS,
    ) -> None:
        self._hub = hub
        self._events = events
        self._reach = reach
        self._clock = clock
        self._sync_seconds = sync_seconds
        self._autoscalers = caches.informer(FEDERATED_HPAS)
        self._bindings = caches.informer(RESOURCE_BINDINGS)
        self._clusters = caches.informer(CLUSTERS)
        self._discovery = Discovery(hub.connection)
        # A new leader knows nothing of what was asked for before it: it takes the present size
        # for that, so that no restart scales down faster than the window allows.
        self._histories: defaultdict[str, ScaleHistory] = defaultdict(ScaleHistory)

    def watches(self) -> Iterable[Watch]:
        """Return the autoscalers; bindings and clusters are read only."""
        yield Watch(self._autoscalers, when=more_than_status_changed)
        yield Watch(self._bindings, to=nothing)
        yield Watch(self._clusters, to=nothing)

    async def reconcile(self, request: Request) -> Result:
        """Measure, decide, scale, and say so; again after fifteen seconds."""
        path = ResourcePath(FEDERATED_HPAS, request.namespace, request.name)
        found = await self._hub.find(path)
        if found is None or is_being_deleted(found):
            self._histories.pop(request.key, None)
            return Done()
        autoscaler = completed_federated_hpa(found)
        spec: Object = autoscaler["spec"]
        now = self._clock.now()
        status: Object = {**(found.get("status") or {})}
        status["observedGeneration"] = metadata_of(found).get("generation")
        conditions: list[Object] = list(status.get("conditions") or [])

        def state(condition: Condition) -> None:
            nonlocal conditions
            conditions = set_condition(conditions, condition, now).conditions

        try:
            target = await self._look(autoscaler)
            current = target.replicas
            status["currentReplicas"] = current
            message = "the HPA controller was able to get the target's current scale"
            state(Condition("AbleToScale", TRUE, "SucceededGetScale", message))
            desired, why = await self._decide(request.key, spec, target, status, state)
            if desired != current:
                await self._scale(target, desired, why)
                message = f"the HPA controller was able to update the target scale to {desired}"
                state(Condition("AbleToScale", TRUE, "SucceededRescale", message))
                self._histories[request.key].stepped(desired - current, now)
                self._events.record(
                    found, "SuccessfulRescale", f"New size: {desired}; reason: {why}"
                )
                status["lastScaleTime"] = format_time(now)
                _log.info("scaled", autoscaler=request.key, before=current, after=desired, why=why)
            status["desiredReplicas"] = desired
        except CannotScale as refusal:
            state(refusal.condition)
            self._events.record(found, refusal.event, refusal.condition.message, is_warning=True)
            status.setdefault("currentReplicas", 0)
            status.setdefault("desiredReplicas", status["currentReplicas"])
        # Killed here, the template has its replicas and the status does not say so: the next
        # attempt finds the size it wants and writes what is true then.
        status["conditions"] = conditions
        with self._events.reporting_failure(found, "FailedUpdateStatus"):
            await commit(self._hub, path, found, {**found, "status": status})
        return RequeueAfter(self._sync_seconds)

    # -- what is scaled ------------------------------------------------------------------------

    async def _look(self, autoscaler: Object) -> Target:
        """Find the target, its binding and its pods; CannotScale says what is missing."""
        namespace = str(metadata_of(autoscaler).get("namespace") or "")
        kind, name = _target_of(autoscaler)

        def unable(reason: str, what: str, error: object, event: str = "") -> CannotScale:
            message = f"the HPA controller was unable to {what}: {error}"
            return CannotScale(Condition("AbleToScale", FALSE, reason, message), event)

        try:
            info = await self._discovery.get_resource(kind)
            path = ResourcePath(info.group_version_resource, namespace, name)
            template = await self._hub.get(path)
        except (NotServed, NotFound, MalformedObject) as error:
            what = "get the target reference object"
            raise unable("FailedGetScaleTargetRef", what, error) from error
        binding = self._bindings.cache.find(key_of(namespace, binding_name(kind.kind, name)))
        if binding is None or template_of(binding).uid != uid_of(template):
            what = "get the binding by scaleTargetRef"
            error = f"no policy places {kind.kind} {name}"
            raise unable("FailedGetBinding", what, error, "FailedGetBindings")
        placed = clusters_of(binding)
        if not placed:
            what, error = "get the target clusters from binding", "no cluster was chosen yet"
            raise unable("FailedGetTargetClusters", what, error)
        try:
            scale = await self._hub.get(path.with_subresource(_SCALE))
        except (NotServed, NotFound) as error:
            what = "get the target's current scale"
            raise unable("FailedGetScale", what, error) from error
        selector = str(find_at(scale, "status", "selector") or "")
        if not selector:
            try:
                selector = str(label_selector_of(find_at(template, "spec", "selector")))
            except MalformedSelector as error:
                raise unable("FailedGetScale", "get the target's current scale", error) from error
        if not selector:
            message = "the HPA target's scale is missing a selector"
            condition = Condition("ScalingActive", FALSE, "InvalidSelector", message)
            raise CannotScale(condition, "SelectorRequired")

        # Two would each undo what the other does, at every look.
        rivals = [
            each for each in self._of_namespace(namespace) if _target_of(each) == (kind, name)
        ]
        if len(rivals) > 1:
            named = ", ".join(sorted(name_of(each) for each in rivals))
            message = (
                f"pods by selector {selector} are controlled by multiple FederatedHPAs: {named}"
            )
            raise CannotScale(Condition("ScalingActive", FALSE, "AmbiguousSelector", message))

        pods = ResourcePath(PODS, namespace)
        members = tuple(MemberPods(each.name, each.replicas) for each in placed)
        async with asyncio.TaskGroup() as looks:
            for member in members:
                cluster = self._clusters.cache.find(member.cluster)
                looks.create_task(look_at(self._reach, cluster, member, pods, selector))
        pod_spec = cast("Object", find_at(template, *_POD_SPEC) or {})
        return Target(path, scale, selector, requests_in(pod_spec), members)

    def _of_namespace(self, namespace: str) -> Iterable[Object]:
        for key in sorted(self._autoscalers.cache.keys()):
            if key.rpartition("/")[0] == namespace:
                found = self._autoscalers.cache.find(key)
                if found is not None and not is_being_deleted(found):
                    yield found

    async def _scale(self, target: Target, replicas: int, why: str) -> None:
        """Write the replicas, by the version that was decided on."""
        version = {"resourceVersion": resource_version_of(target.scale)}
        patch = {"metadata": version, "spec": {"replicas": replicas}}
        place = target.path.with_subresource(_SCALE)
        try:
            await self._hub.patch(place, PatchType.MERGE, patch)
        except ApiError as error:
            message = f"the HPA controller was unable to update the target scale: {error}"
            condition = Condition("AbleToScale", FALSE, "FailedUpdateScale", message)
            raise CannotScale(condition, "FailedRescale") from error

    # -- how many ------------------------------------------------------------------------------

    async def _decide(
        self,
        key: str,
        spec: Object,
        target: Target,
        status: Object,
        state: Callable[[Condition], None],
    ) -> tuple[int, str]:
        """Return the next size, and why."""
        current, now = target.replicas, self._clock.now()
        history = self._histories[key]
        history.remember(current, now)
        least, most = int(spec["minReplicas"]), int(spec["maxReplicas"])
        if not current and least:
            message = "scaling is disabled since the replica count of the target is zero"
            state(Condition("ScalingActive", FALSE, "ScalingDisabled", message))
            return 0, ""
        if current > most:
            return most, "Current number of replicas above Spec.MaxReplicas"
        if current < least:
            return least, "Current number of replicas below Spec.MinReplicas"
        metrics = cast("list[Object]", spec["metrics"])
        if any(each.get("type") in ("Resource", "ContainerResource") for each in metrics):
            async with asyncio.TaskGroup() as asked:
                for each in target.members:
                    if not each.trouble:
                        asked.create_task(read_usage(each, target.path.namespace, target.selector))
        found: list[Measured] = []
        refused: CannotScale | None = None
        for metric in metrics:
            try:
                found.append(await self._measure(metric, spec, target))
            except CannotScale as error:
                refused = refused or error
        # As Kubernetes has it: with one metric unknown the others may ask for more, not for less.
        largest = max(found, key=lambda each: each.replicas, default=None)
        if largest is None or (refused is not None and largest.replicas < current):
            raise refused or CannotScale(
                Condition("ScalingActive", FALSE, "InvalidMetricSourceType", "there are no metrics")
            )
        status["currentMetrics"] = [each.shown for each in found]
        message = "the HPA was able to successfully calculate a replica count from " + largest.name
        if target.silent:
            message += f"; nothing is known of the pods in {target.silent}"
        state(Condition("ScalingActive", TRUE, "ValidMetricFound", message))
        following = history.next_size(spec, current, largest.replicas, now)
        state(following.able_to_scale)
        state(following.limited)
        is_more = following.replicas > current
        return following.replicas, (
            f"{largest.name} above target" if is_more else "All metrics below target"
        )

    async def _measure(self, metric: Object, spec: Object, target: Target) -> Measured:
        """Return what one metric asks for; CannotScale when it cannot be had."""
        match metric.get("type"):
            case "Resource":
                return by_usage("Resource", metric["resource"], spec, target)
            case "ContainerResource":
                return by_usage("ContainerResource", metric["containerResource"], spec, target)
            case "Pods":
                return await by_pods_metric(metric["pods"], spec, target)
            case "Object":
                described: Object = find_at(metric, "object", "describedObject") or {}
                kind = GroupVersionKind.of(
                    str(described.get("apiVersion") or ""), str(described.get("kind") or "")
                )
                try:
                    info = await self._discovery.get_resource(kind)
                except NotServed as error:
                    raise unmeasured("Object", str(error)) from error
                return await by_object_metric(metric["object"], info, target)
            case "External":
                return await by_external_metric(metric["external"], target)
            case other:
                message = f'unknown metric source type "{other}"'
                condition = Condition("ScalingActive", FALSE, "InvalidMetricSourceType", message)
                raise CannotScale(condition)
