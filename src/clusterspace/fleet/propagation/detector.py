"""Template to policy to binding: every template follows the policy that claims it.

    free ──a policy selects it──> claimed ──> bound        two writes; killed between them, the
      ^                                         │          next attempt finds a template without
      └── unmarked <── binding unmarked <───────┘          its binding, and creates it
          the policy goes, or no longer selects it

Nothing is written when nothing changed. A claim ends only after a live read of its policy, and
ending it removes marks alone: what is placed stays placed. A policy stays until nothing follows it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, cast

from clusterspace.apis import stamps
from clusterspace.apis.fleet_placements import is_placed, parent_of, placement_text
from clusterspace.apis.interpreter.templates import Replicas
from clusterspace.apis.policies import (
    CLUSTER_OVERRIDE_POLICIES,
    CLUSTER_PROPAGATION_POLICIES,
    FAILBACK,
    OVERRIDE_POLICIES,
    PROPAGATION_POLICIES,
    is_divided_by_room,
)
from clusterspace.apis.works import (
    CLUSTER_RESOURCE_BINDINGS,
    RESOURCE_BINDINGS,
    reference_to,
    template_of,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit, release
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    nothing,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import AlreadyExists, InterpretationFailed, QuotaExceeded
from clusterspace.fleet.interpretation.interpreter import RETRY_SECONDS, Interpreter
from clusterspace.fleet.propagation.bindings import (
    Policy,
    PolicyIndex,
    binding_path,
    claim_of,
    is_marked,
    is_own,
    new_binding,
    permanent_id,
    policy_path,
    read_policy,
    with_claim,
    with_owner,
    without_claim,
)
from clusterspace.fleet.propagation.templates import (
    TemplateInformers,
    TemplateRequest,
    is_template,
    template_request,
    users_part,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    finalizers_of,
    find_at,
    is_being_deleted,
    labels_of,
    namespace_of,
    uid_of,
    with_finalizer,
    with_metadata,
)
from clusterspace.kube.resources import GroupVersionResource

PRIORITY_CLASSES: Final = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")

BEHIND_SECONDS: Final = 1.0
"""How long to wait for a cache that the hub has just shown to be behind."""

OWN_MARKS_SECONDS: Final = 1.0
"""When marks changed it was most likely us; by then the binding we made is in the cache, too."""

_APPLIED: Final = "ApplyPolicySucceed"
_REPLICAS_READ: Final = "GetReplicasSucceed"
_REPLICAS_UNREAD: Final = "GetReplicasFailed"
_COMPONENTS_READ: Final = "GetComponentsSucceed"
_COMPONENTS_UNREAD: Final = "GetComponentsFailed"
_FAILED: Final = "ApplyPolicyFailed"
_PREEMPTED: Final = "PreemptPolicySucceed"
_NOT_PREEMPTED: Final = "PreemptPolicyFailed"


class Detector(Reconciler):
    """Claims templates for policies, and keeps one binding for each."""

    name = "detector"
    workers = 16

    def __init__(
        self, hub: Client, caches: HubCaches, events: EventRecorder, *, random: Random
    ) -> None:
        self._hub = hub
        self._events = events
        self._random = random
        self._templates = caches.shared(TemplateInformers)
        self._interpreter = caches.shared(Interpreter)
        self._policies = caches.informer(PROPAGATION_POLICIES)
        self._cluster_policies = caches.informer(CLUSTER_PROPAGATION_POLICIES)
        self._overrides = caches.informer(OVERRIDE_POLICIES)
        self._cluster_overrides = caches.informer(CLUSTER_OVERRIDE_POLICIES)
        self._bindings = caches.informer(RESOURCE_BINDINGS)
        self._cluster_bindings = caches.informer(CLUSTER_RESOURCE_BINDINGS)
        self._priority_classes = caches.informer(PRIORITY_CLASSES)
        self._index = PolicyIndex()
        self._edited: set[TemplateRequest] = set()
        """Templates whose users wrote something that is not in their binding yet.

        It begins with every template there is, because to a new process each one is new: what a
        process that was killed had in here is in here again.
        """

    def watches(self) -> Iterable[Watch]:
        """Return the watches after which a template is looked at again."""
        for policies in (self._policies, self._cluster_policies):
            yield Watch(policies, to=self.templates_of_policy)
        for overrides in (self._overrides, self._cluster_overrides):
            yield Watch(overrides, to=self.templates_awaiting)
        for bindings in (self._bindings, self._cluster_bindings):
            yield Watch(bindings, to=self.template_of_deleted)
        yield Watch(self._priority_classes, to=nothing)
        for interpreters in self._interpreter.informers:
            yield Watch(interpreters, to=self.templates_interpreted)
        yield Watch(self._templates, to=self.edited_template)
        yield Watch(self._templates, to=remarked_template, settle_seconds=OWN_MARKS_SECONDS)

    async def reconcile(self, request: Request) -> Result:
        """Bring one template, its marks and its binding to where they should be."""
        if not isinstance(request, TemplateRequest):
            raise TypeError(f"{request} is no request for a template")
        is_edited = request in self._edited
        # Taken out before the work, not after: an edit that arrives during it counts as new.
        self._edited.discard(request)
        is_done = False
        try:
            result = await self._follow_policy(request, is_edited=is_edited)
            is_done = isinstance(result, Done)
            return result
        finally:
            if is_edited and not is_done:
                self._edited.add(request)

    async def _follow_policy(self, request: TemplateRequest, *, is_edited: bool) -> Result:
        template = self._templates.find_at(request.path)
        if template is None or is_being_deleted(template) or not is_template(template):
            return Done()
        is_namespaced = bool(request.namespace)
        bindings = self._bindings if is_namespaced else self._cluster_bindings
        binding = bindings.cache.find(binding_path(template).key)

        # The binding remembers the claim of a template whose marks somebody replaced, as
        # `kubectl replace` does with a file that has none.
        claim = claim_of(template)
        if claim is None and binding is not None and is_own(binding, template):
            claim = claim_of(binding)
        policy = self._index.choose(template, claim)
        preempted: Policy | None = None
        is_kept = policy is not None and claim is not None and policy.key == claim.key
        if claim is not None and not is_kept:
            # The cache may lag behind the hub: a policy that is missing there may just not have
            # arrived yet. Ending a claim by mistake would unmark everything that is placed.
            # Nor is a template taken from a policy that, by now, has the higher priority.
            live = await self._hub.find(policy_path(claim))
            followed = None if live is None else read_policy(live)
            if followed is not None and followed.keeps(template):
                if policy is None or not policy.preempts(followed, template):
                    return RequeueAfter(BEHIND_SECONDS)
                preempted = followed
        if policy is None:
            return await self._release(request, template, binding)

        if not is_kept:
            namespace = policy.claim.namespace
            overrides = (self._overrides if namespace else self._cluster_overrides).cache
            for name in policy.awaited_overrides:
                if (f"{namespace}/{name}" if namespace else name) not in overrides:
                    self._warn(template, policy, f"waits for the override policy {name}")
                    return Done()
        class_name = str(find_at(policy.spec, "schedulePriority", "priorityClassName") or "")
        if class_name and self._priority_classes.cache.find(class_name) is None:
            self._warn(template, policy, f"there is no PriorityClass {class_name}")
            return RequeueAfter(RECHECK_SECONDS)
        # By the version in our cache: when users, or the statuses of members, changed the template
        # since, this is a Conflict, and the next attempt claims what they wrote.
        claimed = with_claim(template, policy.claim)
        unable = _FAILED if preempted is None else _NOT_PREEMPTED
        with self._events.reporting_failure(template, unable):
            template = await commit(self._hub, request.path, template, claimed)
        if preempted is not None:
            message = f"policy({policy.key}) preempted policy({preempted.key}) successfully"
            self._events.record(template, _PREEMPTED, message)
        # Killed here, the template is claimed and has no binding. The next process takes every
        # template for edited, and so comes past this point even if the policy is lazy.
        if policy.is_lazy and not is_edited:
            return Done()
        size = await self._size_of(template)
        if size is None:
            return RequeueAfter(RETRY_SECONDS)
        await self._bind(template, policy, binding, size, takes_version=is_edited)
        return Done()

    async def _size_of(self, template: Object) -> "Size | None":
        """Return how much a template asks for; None, and an Event, when that is not told.

        Its binding stays as it is then: with other replicas these would be shared out and started.
        """
        try:
            components = await self._interpreter.components(template)
        except InterpretationFailed as failure:
            self._events.record(template, _COMPONENTS_UNREAD, str(failure), is_warning=True)
            return None
        try:
            replicas = await self._interpreter.replicas(template)
        except InterpretationFailed as failure:
            self._events.record(template, _REPLICAS_UNREAD, str(failure), is_warning=True)
            return None
        return Size(replicas, components)

    async def _bind(
        self,
        template: Object,
        policy: Policy,
        binding: Object | None,
        size: "Size",
        *,
        takes_version: bool,
    ) -> None:
        """Create the binding of a claimed template, or bring it up to date."""
        path = binding_path(template)
        class_name = str(find_at(policy.spec, "schedulePriority", "priorityClassName") or "")
        chosen = self._priority_classes.cache.find(class_name) if class_name else None
        priority = None if chosen is None else int(chosen.get("value") or 0)
        if binding is None:
            empty = new_binding(template, permanent_id(self._random))
            desired = bound(empty, template, policy, size, takes_version=True, priority=priority)
            try:
                # The name is made of the template's, so whoever creates it twice meets the first.
                await self._hub.create(path.collection, desired)
            except AlreadyExists:
                # Our cache did not know of it yet; it may be ours, of before a restart.
                binding = await self._hub.get(path)
            else:
                self._report(template, policy, size)
                return
        if is_being_deleted(binding) or not is_own(binding, template):
            # When it is gone at last, its deletion wakes us for this template.
            owner = f"{path} is another object's, which must go first"
            if is_placed(binding):
                owner = f"{placement_text(parent_of(binding))} places it"
            self._warn(template, policy, owner)
            return
        desired = bound(
            binding, template, policy, size, takes_version=takes_version, priority=priority
        )
        try:
            written = await commit(self._hub, path, binding, desired)
        except QuotaExceeded as error:
            # Tried again by whoever raised it, and until then the binding says what it said.
            self._warn(template, policy, error.message)
            raise
        if written is not desired:
            self._report(template, policy, size)

    async def _release(
        self, request: TemplateRequest, template: Object, binding: Object | None
    ) -> Result:
        """Remove the marks of a template that no policy selects any more."""
        is_bound = binding is not None and is_own(binding, template) and is_marked(binding)
        if not is_marked(template) and not is_bound:
            return Done()
        # The binding first, so that nobody acts on it any more. Killed between the two writes,
        # the marks that are left on the template bring us back here.
        path = binding_path(template)
        live = await self._hub.find(path)
        if live is not None and is_own(live, template) and is_marked(live):
            await commit(self._hub, path, live, without_claim(live))
        if is_marked(template):
            await commit(self._hub, request.path, template, without_claim(template))
        return Done()

    def templates_of_policy(self, update: Update) -> Iterable[Request]:
        """Map a policy to the templates that follow it, and to those it selects."""
        before, after = update.decode_before(), update.decode_after()
        policy = None if after is None else read_policy(after)
        if policy is None:
            self._index.remove(update.key)
        else:
            self._index.put(policy)
        if before is not None and read_policy(before) == policy:
            return ()
        return {*self._templates.claimed_by(update.key), *self._selected_by(policy)}

    def templates_awaiting(self, update: Update) -> Iterable[Request]:
        """Map an override policy that is new to the templates whose policy waited for it."""
        after = update.decode_after()
        if after is None or update.before is not None:
            return ()
        name, namespace = update.key.rpartition("/")[2], namespace_of(after)
        waiting = [
            policy
            for policy in self._index
            if name in policy.awaited_overrides and policy.claim.namespace == namespace
        ]
        return {request for policy in waiting for request in self._selected_by(policy)}

    def template_of_deleted(self, update: Update) -> Iterable[Request]:
        """Map a binding that is gone to its template, which may have to get a new one."""
        before = update.decode_before()
        if not update.is_deletion or before is None:
            return ()
        template = template_of(before)
        resource = self._templates.find_resource(template.group_version_kind)
        if resource is None:
            return ()
        request = TemplateRequest(
            name=template.name, namespace=template.namespace, resource=resource
        )
        self._edited.add(request)
        return (request,)

    def edited_template(self, update: Update) -> Iterable[Request]:
        """Map a template to itself when its users wrote something; it is remembered as edited."""
        if update.is_deletion:
            return ()  # its binding goes with it: it owns it
        before, after = update.decode_before(), update.decode_after() or {}
        if before is not None and users_part(before) == users_part(after):
            return ()
        request = template_request(update.resource, update.key)
        self._edited.add(request)
        return (request,)

    def templates_interpreted(self, update: Update) -> Iterable[Request]:
        """Map a customization or a webhook to the templates of the kinds it speaks of."""
        return self._templates.of_kinds(lambda kind: self._interpreter.concerns(update, kind))

    def _selected_by(self, policy: Policy | None) -> Iterable[TemplateRequest]:
        if policy is None or policy.is_leaving:
            return ()
        return [
            request
            for selector in policy.selectors
            for request in self._templates.selected_by(selector, policy.claim.namespace)
        ]

    def _report(self, template: Object, policy: Policy, size: "Size") -> None:
        message = f"Apply policy({policy.key}) succeed"
        self._events.record(template, _APPLIED, message, is_routine=True)
        if size.components is not None:
            message = "Get components of resource template successfully."
            self._events.record(template, _COMPONENTS_READ, message, is_routine=True)
        if size.replicas is not None:
            message = "Get replicas of resource template successfully."
            self._events.record(template, _REPLICAS_READ, message, is_routine=True)

    def _warn(self, template: Object, policy: Policy, reason: str) -> None:
        message = f"Apply policy({policy.key}) failed: {reason}"
        self._events.record(template, _FAILED, message, is_warning=True)


def remarked_template(update: Update) -> Iterable[Request]:
    """Map a template to itself when its marks changed."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None or claim_of(before) == claim_of(after):
        return ()
    return (template_request(update.resource, update.key),)


# -- what a policy says in the binding of a template -------------------------------------------

# A binding has several writers. The detector's fields are the claim, the template and what the
# policy says; the chosen clusters, the dependents and the statuses are never touched here.


_POLICY_FIELDS: Final = (
    "conflictResolution",
    "failover",
    "placement",
    "preserveResourcesOnDeletion",
    "propagateDeps",
    "rollout",
    "schedulerName",
)
"""What a binding takes over from its policy as it is."""

_DETECTORS_FIELDS: Final = frozenset(
    {
        *_POLICY_FIELDS,
        "components",
        "replicas",
        "replicaRequirements",
        "resource",
        "schedulePriority",
        "suspension",
        "workloadAffinityGroups",
    }
)

_SCHEDULING: Final = "scheduling"
"""The one part of a suspension that is the binding's own."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much a template asks for: its replicas, if any, and its parts, if somebody says."""

    replicas: Replicas | None = None
    components: list[Object] | None = None


def bound(
    binding: Object,
    template: Object,
    policy: Policy,
    size: Size,
    *,
    takes_version: bool,
    priority: int | None = None,
) -> Object:
    """Return the binding as it is to be while its template follows a policy.

    Every new version of a binding is looked at by all who work on it. So it takes the template's
    version only when users changed the template, and not when its status moved.
    """
    claimed = with_claim(with_owner(binding, template), policy.claim)
    noted = {key: text for key, text in annotations_of(claimed).items() if key != FAILBACK}
    if policy.failback:
        noted[FAILBACK] = policy.failback
    claimed = with_metadata(claimed, annotations=noted)
    spec: Object = claimed.get("spec") or {}
    ours: dict[str, Any] = {key: policy.spec.get(key) for key in _POLICY_FIELDS}
    ours["placement"] = ours["placement"] or {}
    ours["propagateDeps"] = True if ours["propagateDeps"] else None
    ours["schedulePriority"] = None if priority is None else {"priority": priority}

    # Groups are of a namespace, and of workloads that have one.
    affinity = find_at(policy.spec, "placement", "workloadAffinity")
    groups = {
        field: f"{key}={labels_of(template)[key]}"
        for field, term in (("affinityGroup", "affinity"), ("antiAffinityGroup", "antiAffinity"))
        if (key := find_at(affinity, term, "groupByLabelKey")) in labels_of(template)
    }
    ours["workloadAffinityGroups"] = (groups or None) if namespace_of(template) else None

    if size.replicas is not None:
        ours["replicas"] = size.replicas.count or None
        ours["replicaRequirements"] = size.replicas.requirements
        # Where it is counted what fits: whose quotas count.
        needs, namespace = size.replicas.requirements, namespace_of(template)
        placement = cast("Object", ours["placement"])
        if needs and namespace and is_divided_by_room(placement):
            ours["replicaRequirements"] = {**needs, "namespace": namespace}
    ours["components"] = size.components or None

    suspension: Object = spec.get("suspension") or {}
    kept = {_SCHEDULING: suspension[_SCHEDULING]} if _SCHEDULING in suspension else {}
    ours["suspension"] = {**(policy.spec.get("suspension") or {}), **kept} or None

    reference = reference_to(template)
    known = template_of(binding)
    is_same = known.uid == uid_of(template) and bool(known.resource_version)
    if is_same and not takes_version:
        reference = {**reference, "resourceVersion": known.resource_version}
    ours["resource"] = reference

    others = {key: value for key, value in spec.items() if key not in _DETECTORS_FIELDS}
    return {**claimed, "spec": {**others, **{k: v for k, v in ours.items() if v is not None}}}


UNSYNCED_SECONDS: Final = 1.0
RECHECK_SECONDS: Final = 10.0
"""Templates can vanish without an event: with their kind."""


# -- the policies themselves: kept until nothing follows them, with an ID that never changes -------
#
# The hub gives finalizer and ID to every new policy. One that was created on another hub, or while
# the hub's admission was off, gets them here.


def marked(policy: Object, namespace: str, random: Random) -> Object:
    """Return a policy with the ID and the finalizer every policy has."""
    label = stamps.POLICY_ID if namespace else stamps.CLUSTER_POLICY_ID
    finalized = with_finalizer(policy, finalizer_for(namespace))
    labels = labels_of(finalized)
    if labels.get(label):
        return finalized
    return with_metadata(finalized, labels={**labels, label: permanent_id(random)})


def finalizer_for(namespace: str) -> str:
    """Return the finalizer of policies in namespaces, or of cluster-wide ones for none."""
    return stamps.POLICY_FINALIZER if namespace else stamps.CLUSTER_POLICY_FINALIZER


class PolicyLifecycle(Reconciler):
    """Marks policies, and releases those that nothing follows any more."""

    name = "policies"

    def __init__(
        self, hub: Client, caches: HubCaches, events: EventRecorder, *, random: Random
    ) -> None:
        self._hub = hub
        self._events = events
        self._random = random
        self._templates = caches.shared(TemplateInformers)
        self._policies = caches.informer(PROPAGATION_POLICIES)
        self._cluster_policies = caches.informer(CLUSTER_PROPAGATION_POLICIES)
        self._leaving: set[str] = set()
        """Keys of policies that wait for templates to stop following them."""

    def watches(self) -> Iterable[Watch]:
        """Return the policies, and the templates that a leaving policy waits for."""
        yield Watch(self._policies)
        yield Watch(self._cluster_policies)
        yield Watch(self._templates, to=self.leaving_policy)

    async def reconcile(self, request: Request) -> Result:
        """Mark a policy, or let it go."""
        policies = self._policies if request.namespace else self._cluster_policies
        policy = policies.cache.find(request.key)
        if policy is None:
            self._leaving.discard(request.key)
            return Done()
        path = policies.path.at(request.key)
        if is_being_deleted(policy):
            return await self._let_go(path, policy)
        if problem := read_policy(policy).problem:
            self._events.record(policy, "InvalidResourceSelector", problem, is_warning=True)
        await commit(self._hub, path, policy, marked(policy, request.namespace, self._random))
        return Done()

    async def _let_go(self, path: ResourcePath, policy: Object) -> Result:
        """Remove the finalizer of a policy, unless a template may still carry its marks."""
        finalizer = finalizer_for(path.namespace)
        if finalizer not in finalizers_of(policy):
            return Done()
        self._leaving.add(path.key)
        # A policy that goes while a template still follows it would leave the template marked
        # for ever. Until every kind has been listed, nobody can say that none does.
        if not self._templates.has_synced:
            return RequeueAfter(UNSYNCED_SECONDS)
        # The detector claims nothing for a policy that it sees leaving. Where its cache is behind
        # it may claim one more template after this look, for a policy that is then gone: the
        # marks it wrote come back to it as a change, and it removes them after a live read.
        if self._templates.claimed_by(path.key):
            return RequeueAfter(RECHECK_SECONDS)
        await release(self._hub, path, policy, finalizer)
        self._leaving.discard(path.key)
        return Done()

    def leaving_policy(self, update: Update) -> Iterable[Request]:
        """Map a template to the policy it followed, if that one is leaving."""
        if not self._leaving:
            return ()
        before = update.decode_before()
        claim = None if before is None else claim_of(before)
        if claim is None or claim.key not in self._leaving:
            return ()
        return (Request(claim.name, claim.namespace),)
