"""Workloads that HorizontalPodAutoscalers scale on members: they keep the replicas they have there.

    placed HorizontalPodAutoscaler ──names──> template: label retain-replicas ──> (members keep)
    replicas of all clusters ──summed up──> template: scale, so that the next division starts there

The label is set by server-side apply under a name of its own. So whose it is can be seen in the
object itself: what a person wrote stays when the autoscaler goes, and what was set here goes with
it, whoever notices that, and after however many restarts.
"""

from collections.abc import Iterable
from typing import Final, cast

import structlog

from clusterspace.apis import stamps
from clusterspace.apis.kinds import DEPLOYMENT, kind_of
from clusterspace.apis.policies import DIVIDED, ResourceSelector
from clusterspace.apis.works import RESOURCE_BINDINGS, clusters_of, placement_of, replicas_of
from clusterspace.client.requests import ResourcePath, key_of
from clusterspace.client.resources import Client, PatchType, WriteOptions
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    nothing,
)
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import Malformed, NotFound
from clusterspace.fleet.propagation.templates import TemplateInformers, TemplateRequest
from clusterspace.kube.objects import (
    Object,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    resource_version_of,
)
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource

_log = structlog.get_logger(__name__)

AUTOSCALERS: Final = GroupVersionResource("autoscaling", "v2", "horizontalpodautoscalers")
MANAGER: Final = "clusterspace-scale-targets"
_AUTOSCALER: Final = ("autoscaling/v2", "HorizontalPodAutoscaler")
_RETAINED: Final = {stamps.RETAIN_REPLICAS: "true"}
_REPORT_SECONDS: Final = 1.0
"""After which clusters are looked at again that have not all said what they have."""
_IN_BYTES: Final = stamps.RETAIN_REPLICAS.encode()
_CLAIMS: Final = (stamps.POLICY_ID, stamps.CLUSTER_POLICY_ID)


class ScaleTargets(Reconciler):
    """Has members keep autoscaled replicas, and the template follow their sum."""

    name = "scale-targets"
    workers = 2

    def __init__(self, hub: Client, caches: HubCaches) -> None:
        self._hub = hub
        self._templates = caches.shared(TemplateInformers)
        self._bindings = caches.informer(RESOURCE_BINDINGS)

    def watches(self) -> Iterable[Watch]:
        """Return the autoscalers, for their targets, and what bears the label, for itself."""
        yield Watch(self._templates, to=self._targets, when=_is_of_autoscaler)
        yield Watch(self._templates, to=_itself, when=_is_labelled)
        yield Watch(self._bindings, to=nothing)

    async def reconcile(self, request: Request) -> Result:
        """Set or take away the label of one template, and have its replicas follow the members."""
        if not isinstance(request, TemplateRequest):
            return Done()
        cached = self._templates.find_at(request.path)
        if cached is None or is_being_deleted(cached):
            return Done()
        is_scaled, is_labelled = self._is_scaled(cached), _is_retained(cached)
        if is_scaled and not is_labelled:
            await self._label(request.path, cached, _RETAINED)
            return Done()  # its change comes back here
        if is_labelled and not is_scaled and self._templates.has_synced:
            # Live, for the cache does not say who set it, and may not know a new autoscaler yet.
            template = await self._hub.find(request.path)
            if template is not None and _is_ours(template):
                await self._label(request.path, template, {})
                return Done()
        if is_labelled and kind_of(cached) == DEPLOYMENT:
            return await self._follow_members(request.path, cached)
        return Done()

    async def _label(self, path: ResourcePath, template: Object, labels: dict[str, str]) -> None:
        """Own exactly these labels of a template; what others own stays."""
        metadata = {"name": name_of(template), "namespace": namespace_of(template)}
        applied: Object = {
            "apiVersion": template["apiVersion"],
            "kind": template["kind"],
            "metadata": {**metadata, "labels": labels} if labels else metadata,
        }
        try:
            await self._hub.apply(path, applied, WriteOptions(field_manager=MANAGER, force=True))
        except NotFound:
            return
        _log.info("autoscaled template", template=str(path), is_retained=bool(labels))

    async def _follow_members(self, path: ResourcePath, deployment: Object) -> Result:
        """Give a divided template the replicas its clusters have, once all of them have said so."""
        name = stamps.binding_name(str(deployment["kind"]), path.name)
        binding = self._bindings.cache.find(key_of(path.namespace, name))
        current = find_at(deployment, "spec", "replicas")
        if binding is None or not _is_divided(binding):
            return Done()
        if find_at(deployment, "status", "replicas") == current:
            return Done()
        replicas = summed_replicas(binding, deployment)
        if replicas is None:
            return RequeueAfter(_REPORT_SECONDS)
        version = {"resourceVersion": resource_version_of(deployment)}
        patch = {"metadata": version, "spec": {"replicas": replicas}}
        # By the version that was summed up: a person who scales right now is not overruled by
        # what members said before that.
        await self._hub.patch(path.with_subresource("scale"), PatchType.MERGE, patch)
        _log.info("template follows its members", template=str(path), replicas=replicas)
        return Done()

    def _is_scaled(self, template: Object) -> bool:
        """Whether a placed autoscaler of its namespace names a template."""
        selector = ResourceSelector(*_AUTOSCALER, namespace=namespace_of(template))
        wanted = (str(template.get("kind")), name_of(template))
        for request in self._templates.selected_by(selector):
            autoscaler = self._templates.find_at(request.path)
            if autoscaler is None or is_being_deleted(autoscaler):
                continue
            named = cast("Object", find_at(autoscaler, "spec", "scaleTargetRef") or {})
            if (named.get("kind"), named.get("name")) == wanted and _is_claimed(autoscaler):
                return True
        return False

    def _targets(self, update: Update) -> Iterable[Request]:
        """Map an autoscaler to what it scales, and to what it scaled before."""
        for autoscaler in (update.decode_before(), update.decode_after()):
            named = cast("Object", find_at(autoscaler, "spec", "scaleTargetRef") or {})
            try:
                kind = GroupVersionKind.of(str(named.get("apiVersion")), str(named.get("kind")))
            except Malformed:
                continue
            resource = self._templates.find_resource(kind)
            if resource is not None and named.get("name"):
                namespace = namespace_of(autoscaler or {})
                yield TemplateRequest(
                    name=str(named["name"]), namespace=namespace, resource=resource
                )


def summed_replicas(binding: Object, deployment: Object) -> int | None:
    """Return the replicas that all clusters have together; None while that is not known.

    What is not known: a division that is under way, a cluster that has not reported, or one whose
    report the template does not show yet.
    """
    if replicas_of(binding) != find_at(deployment, "spec", "replicas"):
        return None
    observed = find_at(binding, "status", "schedulerObservedGeneration")
    if observed != metadata_of(binding).get("generation"):
        return None
    reported = cast("list[Object]", find_at(binding, "status", "aggregatedStatus") or [])
    counts = {each.get("clusterName"): find_at(each, "status", "replicas") for each in reported}
    clusters = {each.name for each in clusters_of(binding)}
    # An autoscaler keeps one replica at least: none means that nothing was reported yet.
    if not clusters or set(counts) != clusters or not all(counts.values()):
        return None
    total = sum(int(each) for each in counts.values())
    return total if total == find_at(deployment, "status", "replicas") else None


def _is_of_autoscaler(update: Update) -> bool:
    return update.resource == AUTOSCALERS


def _is_labelled(update: Update) -> bool:
    return update.after is not None and _IN_BYTES in update.after


def _is_divided(binding: Object) -> bool:
    placement = placement_of(binding) or {}
    return find_at(placement, "replicaScheduling", "replicaSchedulingType") == DIVIDED


def _itself(update: Update) -> Iterable[Request]:
    namespace, _, name = update.key.rpartition("/")
    yield TemplateRequest(name=name, namespace=namespace, resource=update.resource)


def _is_retained(template: Object) -> bool:
    return labels_of(template).get(stamps.RETAIN_REPLICAS) == "true"


def _is_claimed(autoscaler: Object) -> bool:
    return any(each in labels_of(autoscaler) for each in _CLAIMS)


def _is_ours(template: Object) -> bool:
    entries = cast("list[Object]", metadata_of(template).get("managedFields") or [])
    return any(each.get("manager") == MANAGER for each in entries)
