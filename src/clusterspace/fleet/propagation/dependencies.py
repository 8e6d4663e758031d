"""What a template needs goes where it goes: its dependencies get bindings of their own.

    parent      propagateDeps, the chosen clusters, and in an annotation what the template needs
    attached    the binding of one of those: `requiredBy` names its parents and their clusters

An attached binding that also follows a policy of its own keeps both. A binding that nobody
requires any more keeps no cluster by it; what its own policy placed stays.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Final, cast

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.templates import Dependency
from clusterspace.apis.policies import ABORT, OVERWRITE, ResourceSelector
from clusterspace.apis.rollouts import revisions_of, strategy_name_of
from clusterspace.apis.works import (
    RESOURCE_BINDINGS,
    clusters_of,
    conflict_resolution_of,
    placement_of,
    preserves_resources,
    propagates_dependencies,
    reference_to,
    requirers_of,
    template_of,
)
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    nothing,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import AlreadyExists, Conflict, InterpretationFailed, Malformed
from clusterspace.fleet.interpretation.interpreter import RETRY_SECONDS, Interpreter
from clusterspace.fleet.propagation.bindings import (
    binding_path,
    is_marked,
    is_own,
    leaving_clusters,
    needed_by,
    new_binding,
    permanent_id,
)
from clusterspace.fleet.propagation.templates import (
    TemplateInformers,
    TemplateRevisions,
    users_part,
    why_not_carried_here,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    finalizers_of,
    find_at,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
    with_finalizer,
    with_metadata,
    with_value,
    without_finalizer,
    without_value,
)
from clusterspace.kube.resources import GroupResource, GroupVersionKind
from clusterspace.kube.selectors import label_selector_of

BEHIND_SECONDS: Final = 0.5
"""How long to wait for a cache that is not complete yet, or that the hub has shown to be behind."""

RECHECK_SECONDS: Final = 30.0
_CONFLICT: Final = "DependencyPolicyConflict"
_FOUND: Final = "GetDependenciesSucceed"
_NOT_FOUND: Final = "GetDependenciesFailed"
_ATTACHED: Final = "SyncScheduleResultToDependenciesSucceed"
_UNATTACHED: Final = "SyncScheduleResultToDependenciesFailed"


class DependencyDistributor(Reconciler):
    """Attaches bindings of dependencies to the bindings that require them."""

    name = "dependencies"

    def __init__(
        self, hub: Client, caches: HubCaches, events: EventRecorder, *, random: Random
    ) -> None:
        self._hub = hub
        self._events = events
        self._random = random
        self._templates = caches.shared(TemplateInformers)
        self._interpreter = caches.shared(Interpreter)
        self._revisions = caches.shared(TemplateRevisions)
        self._bindings = caches.informer(RESOURCE_BINDINGS, indexes=BINDING_INDEXES)

    def watches(self) -> Iterable[Watch]:
        """Return the bindings, and the templates that may be somebody's dependencies."""
        yield Watch(self._bindings, to=parents_concerned)
        yield Watch(self._templates, to=self.parents_needing)
        for interpreters in self._interpreter.informers:
            yield Watch(interpreters, to=self.parents_interpreted)
        for snapshots in self._revisions.informers:
            yield Watch(snapshots, to=nothing)

    async def reconcile(self, request: Request) -> Result:
        """Bring the bindings that one binding requires to where they should be."""
        # A dependency that is not in a cache yet would look as if it did not exist.
        if not self._templates.has_synced:
            return RequeueAfter(BEHIND_SECONDS)
        parent = self._bindings.cache.find(request.key)
        if parent is not None and why_not_carried_here(self._templates, parent):
            # Its template is somebody else's, and so is what that needs; what is attached stays.
            return Done()
        if parent is None or is_being_deleted(parent) or not propagates_dependencies(parent):
            return await self._release(request, parent)
        if not clusters_of(parent) and not _has_finalizer(parent):
            return Done()  # not scheduled yet: nobody knows where anything is needed
        about = template_of(parent)
        template = self._templates.find(about.group_version_kind, about.namespace, about.name)
        if template is None or uid_of(template) != about.uid:
            return RequeueAfter(RECHECK_SECONDS)  # its binding goes with it, or it cannot be seen
        try:
            needed = await self._needs(parent, template)
            selected = self._selected_by(needed)
            if not await self._detach_all_but(needed, selected, parent, template):
                return RequeueAfter(BEHIND_SECONDS)
        except InterpretationFailed as failure:
            # What is attached stays attached: not known is not "needs nothing".
            self._events.record(template, _NOT_FOUND, str(failure), is_warning=True)
            return RequeueAfter(RETRY_SECONDS)
        # The finalizer and the list come before anything is attached: a parent that goes right
        # after this is held until what it required is detached.
        path = resource_path_of(RESOURCE_BINDINGS, parent)
        desired = parent_with(parent, needed)
        parent = await commit(self._hub, path, parent, desired)
        if parent is not desired:
            named = ", ".join(f"{each.kind} {each.name}" for each in selected) or "none"
            message = f"Get dependencies({named}) succeed."
            self._events.record(template, _FOUND, message, is_routine=True)
        with self._events.reporting_failure(parent, _UNATTACHED):
            attached = [await self._attach(dependency, parent) for dependency in selected]
        if any(attached):
            message = "Sync schedule results to dependencies succeed."
            self._events.record(parent, _ATTACHED, message, is_routine=True)
        return Done()

    async def _needs(self, parent: Object, template: Object) -> tuple[Dependency, ...]:
        """Return what a template needs, in every state that some cluster is to have.

        While a rollout brings one state after the other, what the older one needs stays where it
        is. Conflict when a state is not in our cache yet: not known is not "needs nothing".
        """
        revisions = revisions_of(parent) if strategy_name_of(parent) else None
        states = [template]
        for revision in sorted(revisions.in_use) if revisions else ():
            stored = self._revisions.find(parent, revision)
            if stored is None:
                raise Conflict(f"the revision {revision} of {name_of(parent)} is not known yet")
            states.append(stored.template)
        needed = [await self._interpreter.dependencies(each) for each in states]
        return tuple(sorted({each for listed in needed for each in listed}))

    def _selected_by(self, needed: Iterable[Dependency]) -> tuple[Dependency, ...]:
        """Return dependencies by name alone: those that labels select are looked up."""
        found: set[Dependency] = set()
        for each in needed:
            if not each.selector:
                found.add(each)
                continue
            try:
                labels = label_selector_of(msgspec.json.decode(each.selector))
            except Malformed as error:
                why = f"the labelSelector of a dependency {each.kind} cannot be read: {error}"
                raise InterpretationFailed(why) from None
            meant = ResourceSelector(each.api_version, each.kind, each.namespace)
            for request in self._templates.selected_by(meant):
                template = self._templates.find_at(request.path)
                if template is None or request.namespace != each.namespace:
                    continue
                if labels.matches(labels_of(template)):
                    found.add(replace(each, name=request.name, selector=""))
        return tuple(sorted(found))

    async def _attach(self, dependency: Dependency, parent: Object) -> bool:
        """Make or complete the binding of a dependency; one that is not there is waited for.

        Returns whether anything was written.
        """
        kind = GroupVersionKind.of(dependency.api_version, dependency.kind)
        template = self._templates.find(kind, dependency.namespace, dependency.name)
        if template is None or is_being_deleted(template):
            return False
        path = binding_path(template)
        current = self._bindings.cache.find(path.key)
        if current is None:
            empty = new_binding(template, permanent_id(self._random))
            desired = self._as_required(attached(empty, template, parent), parent)
            try:
                await self._hub.create(path.collection, desired)
            except AlreadyExists:
                current = await self._hub.get(path)  # our cache did not know of it yet
            else:
                return True
        if is_being_deleted(current) or not is_own(current, template):
            return False  # when it is gone, its deletion wakes us for this parent
        # Several parents may require the same dependency, and are reconciled at the same time. All
        # of them write `requiredBy`; whoever planned on an old list gets a Conflict, and adds
        # itself to the new one at the next attempt. No entry of another parent is ever lost.
        desired = self._as_required(attached(current, template, parent), parent)
        return await commit(self._hub, path, current, desired) is not desired

    def _as_required(self, binding: Object, parent: Object) -> Object:
        others = (
            self._bindings.cache.find(key_of(each.namespace, each.name))
            for each in requirers_of(binding)
            if (each.namespace, each.name) != (namespace_of(parent), name_of(parent))
        )
        parents = [parent, *(each for each in others if each is not None)]
        if conflicts := disagreements(parents):
            message = f"Dependency policy conflict detected: {'; '.join(conflicts)}."
            self._events.record(binding, _CONFLICT, message, is_warning=True)
        return as_required(binding, parents)

    async def _detach_all_but(
        self,
        needed: tuple[Dependency, ...],
        selected: Iterable[Dependency],
        parent: Object,
        template: Object,
    ) -> bool:
        """Detach what is no longer needed; False when our caches turn out to be behind."""
        kept = {(each.kind, each.namespace, each.name) for each in selected}
        key = key_of(namespace_of(parent), name_of(parent))
        orphans: list[Object] = []
        for each in self._bindings.cache.objects_at(BY_REQUIRER, key):
            about = template_of(each)
            if (about.kind, about.namespace, about.name) not in kept:
                orphans.append(each)
        if not orphans:
            return True
        # By the template in our cache these are not needed. It may be an old one.
        resource = self._templates.find_resource(template_of(parent).group_version_kind)
        live = (
            None if resource is None else await self._hub.find(resource_path_of(resource, template))
        )
        live_parent = await self._hub.find(resource_path_of(RESOURCE_BINDINGS, parent))
        if live is None or live_parent is None:
            return False
        if await self._needs(live_parent, live) != needed:
            return False
        for orphan in orphans:
            await self._detach(orphan, namespace_of(parent), name_of(parent))
        return True

    async def _release(self, request: Request, parent: Object | None) -> Result:
        """Detach everything a binding required, then let the binding go."""
        orphans = self._bindings.cache.objects_at(BY_REQUIRER, request.key)
        if orphans:
            # A parent that is missing from the cache may only not be there yet. Detaching takes
            # objects away from clusters, so the hub itself has to say that it requires nothing.
            live = await self._hub.find(
                ResourcePath(RESOURCE_BINDINGS, request.namespace, request.name)
            )
            if live is not None and not is_being_deleted(live) and propagates_dependencies(live):
                return RequeueAfter(BEHIND_SECONDS)
        for orphan in orphans:
            await self._detach(orphan, request.namespace, request.name)
        # Last: as long as anything is attached, the parent stays and says what that was. Killed
        # before this, the next process finds it by its finalizer and goes on.
        if parent is not None and _has_finalizer(parent):
            path = resource_path_of(RESOURCE_BINDINGS, parent)
            await commit(self._hub, path, parent, parent_without(parent))
        return Done()

    async def _detach(self, binding: Object, namespace: str, name: str) -> None:
        left = detached(binding, namespace, name)
        keys = (key_of(each.namespace, each.name) for each in requirers_of(left))
        parents = [each for key in keys if (each := self._bindings.cache.find(key)) is not None]
        desired = as_required(left, parents)
        await commit(self._hub, resource_path_of(RESOURCE_BINDINGS, binding), binding, desired)

    def parents_needing(self, update: Update) -> Iterable[Request]:
        """Map a template that came, changed or went to the bindings that need it."""
        kind = DEPENDENCY_KINDS.get(update.resource.group_resource)
        if kind is None:
            changed = update.decode_after() or update.decode_before() or {}
            kind = str(changed.get("kind"))
        namespace, _, name = update.key.rpartition("/")
        parents = frozenset[str]()
        for named in (name, ""):  # those that need it by its labels have no name
            word = dependency_word(kind, namespace, named)
            parents |= self._bindings.cache.keys_at(BY_DEPENDENCY, word)
        if not parents:
            return ()
        before, after = update.decode_before(), update.decode_after()
        if before is not None and after is not None and users_part(before) == users_part(after):
            return ()
        return [request_for(key) for key in parents]

    def parents_interpreted(self, update: Update) -> Iterable[Request]:
        """Map a customization or a webhook to the parents of the kinds it speaks of."""
        return [
            each
            for each in self._templates.bindings_of_kinds(
                lambda kind: self._interpreter.concerns(update, kind)
            )
            if each.namespace
        ]


def parents_concerned(update: Update) -> Iterable[Request]:
    """Map a binding to itself, and to the bindings that require it."""
    before, after = update.decode_before(), update.decode_after()
    binding = after or before or {}
    if before is not None and after is not None:
        may_require = propagates_dependencies(before) or propagates_dependencies(after)
        if not may_require and not _has_finalizer(after):
            return ()
        was = before.get("spec"), finalizers_of(before), is_being_deleted(before)
        is_now = after.get("spec"), finalizers_of(after), is_being_deleted(after)
        return () if was == is_now else (request_for(update.key),)
    requirers = [Request(each.name, each.namespace) for each in requirers_of(binding)]
    is_parent = propagates_dependencies(binding) or _has_finalizer(binding)
    return [*requirers, *((request_for(update.key),) if is_parent else ())]


def _has_finalizer(binding: Object) -> bool:
    return stamps.DEPENDENCIES_FINALIZER in finalizers_of(binding)


# -- what a binding requires, and by whom another is required ----------------------------------


BY_DEPENDENCY: Final = "dependency"
BY_REQUIRER: Final = "requirer"

DEPENDENCY_KINDS: Final = {
    GroupResource("", "configmaps"): "ConfigMap",
    GroupResource("", "persistentvolumeclaims"): "PersistentVolumeClaim",
    GroupResource("", "secrets"): "Secret",
    GroupResource("", "serviceaccounts"): "ServiceAccount",
    GroupResource("", "services"): "Service",
    GroupResource("discovery.k8s.io", "endpointslices"): "EndpointSlice",
}
"""What the templates we know ourselves can need; others say what theirs do."""


def parent_with(parent: Object, needed: Iterable[Dependency]) -> Object:
    """Return a parent that says what it needs, held until that is let go of."""
    written = msgspec.json.encode([each.written() for each in needed]).decode()
    noted = {**annotations_of(parent), stamps.BINDING_DEPENDENCIES: written}
    return with_finalizer(with_metadata(parent, annotations=noted), stamps.DEPENDENCIES_FINALIZER)


def parent_without(parent: Object) -> Object:
    """Return a parent that needs nothing, and need not be held."""
    released = without_finalizer(parent, stamps.DEPENDENCIES_FINALIZER)
    annotations = annotations_of(parent)
    if stamps.BINDING_DEPENDENCIES not in annotations:
        return released
    kept = {key: each for key, each in annotations.items() if key != stamps.BINDING_DEPENDENCIES}
    return with_metadata(released, annotations=kept or None)


def attached(binding: Object, dependency: Object, parent: Object) -> Object:
    """Return the binding of a dependency, required by a parent on the parent's clusters.

    And on those that the parent is leaving: until its copy there goes, it needs what it needs.
    """
    namespace, name = namespace_of(parent), name_of(parent)
    clusters: list[Object] = find_at(parent, "spec", "clusters") or []
    left = leaving_clusters(parent) - {each.get("name") for each in clusters}
    listed = [*clusters, *({"name": each} for each in sorted(left))]
    entry = {"namespace": namespace, "name": name, "clusters": listed}
    entries = [
        *_entries_but(binding, namespace, name),
        {key: value for key, value in entry.items() if value},
    ]
    entries.sort(key=lambda each: (str(each.get("namespace") or ""), str(each.get("name"))))
    label = stamps.depended_by_label(namespace, name)
    labels = {**labels_of(binding), label: labels_of(parent).get(stamps.BINDING_ID, "")}
    required = with_value(with_metadata(binding, labels=labels), entries, "spec", "requiredBy")
    return with_value(required, reference_to(dependency), "spec", "resource")


def detached(binding: Object, namespace: str, name: str) -> Object:
    """Return the binding of a dependency without a parent that no longer requires it."""
    label = stamps.depended_by_label(namespace, name)
    labels = {key: each for key, each in labels_of(binding).items() if key != label}
    kept = _entries_but(binding, namespace, name)
    unlabelled = with_metadata(binding, labels=labels or None)
    if kept:
        return with_value(unlabelled, kept, "spec", "requiredBy")
    return without_value(unlabelled, "spec", "requiredBy")


def as_required(binding: Object, parents: Iterable[Object]) -> Object:
    """Return the binding of a dependency on the terms of its parents.

    Overwriting wins over aborting, preserving over deleting, and stages over all at once.

    One that follows a policy of its own is as that policy says.
    """
    if placement_of(binding) is not None:
        return binding
    known = list(parents)
    # What a template needs is brought along stage by stage, too. One that nobody claims any more
    # is brought nowhere.
    staged = [each for each in known if strategy_name_of(each) and is_marked(each)]
    if staged:
        first = min(staged, key=lambda each: (namespace_of(each), name_of(each)))
        binding = with_value(binding, find_at(first, "spec", "rollout"), "spec", "rollout")
    else:
        binding = without_value(binding, "spec", "rollout")
    if not known:
        plain = with_value(binding, ABORT, "spec", "conflictResolution")
        return without_value(plain, "spec", "preserveResourcesOnDeletion")
    overwrites = any(conflict_resolution_of(each) == OVERWRITE for each in known)
    preserves = any(preserves_resources(each) for each in known)
    resolved = with_value(binding, OVERWRITE if overwrites else ABORT, "spec", "conflictResolution")
    return with_value(resolved, preserves, "spec", "preserveResourcesOnDeletion")


def disagreements(parents: Iterable[Object]) -> tuple[str, ...]:
    """Return on what parents of one dependency do not agree, in Karmada's words."""
    known = list(parents)
    terms = {
        "ConflictResolution conflicted (Overwrite vs Abort)": conflict_resolution_of,
        "PreserveResourcesOnDeletion conflicted (true vs false)": preserves_resources,
    }
    return tuple(words for words, read in terms.items() if len({read(each) for each in known}) > 1)


def dependency_word(kind: str, namespace: str, name: str) -> str:
    """Return the word under which parents that need an object are found."""
    return f"{kind} {namespace}/{name}"


def by_dependency(parent: Object) -> Iterable[str]:
    """Index parents by what they need."""
    return [dependency_word(each.kind, each.namespace, each.name) for each in needed_by(parent)]


def by_requirer(binding: Object) -> Iterable[str]:
    """Index bindings of dependencies by the parents that require them."""
    return [f"{each.namespace}/{each.name}" for each in requirers_of(binding)]


BINDING_INDEXES: Final = {BY_DEPENDENCY: by_dependency, BY_REQUIRER: by_requirer}


def _entries_but(binding: Object, namespace: str, name: str) -> list[Object]:
    """Return the entries of `requiredBy` for all parents but one."""
    entries = cast("list[Object]", find_at(binding, "spec", "requiredBy") or [])
    return [
        each
        for each in entries
        if (each.get("namespace", ""), each.get("name")) != (namespace, name)
    ]
