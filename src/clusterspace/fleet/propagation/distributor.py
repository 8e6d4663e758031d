"""Binding to the bindings of what its template needs, and away from what it no longer needs."""

from collections.abc import Iterable
from random import Random
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis import stamps
from clusterspace.apis.bindings import (
    RESOURCE_BINDINGS,
    clusters_of,
    propagates_dependencies,
    requirers_of,
    template_of,
)
from clusterspace.apis.interpreter.dependencies import Dependency, dependencies_in
from clusterspace.client.places import Place, key_of, place_of
from clusterspace.client.resources import Client
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import Controller
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.finalizers import finalizers_of, is_being_deleted
from clusterspace.controllers.informers import Update
from clusterspace.controllers.reconcile import Done, Outcome, Request, RequeueAfter, request_for
from clusterspace.errors import AlreadyExists
from clusterspace.fleet.propagation.bindings import binding_place, is_own, new_binding
from clusterspace.fleet.propagation.claims import permanent_id
from clusterspace.fleet.propagation.dependencies import (
    BY_DEPENDENCY,
    BY_REQUIRER,
    DEPENDENCY_KINDS,
    attached,
    dependency_word,
    detached,
    disagreements,
    parent_with,
    parent_without,
    with_parents_wishes,
)
from clusterspace.fleet.propagation.templates import users_part
from clusterspace.fleet.propagation.triggers import Sources
from clusterspace.fleet.propagation.works.sources import why_not_carried_here
from clusterspace.kube.objects import Object, name_of, namespace_of, uid_of
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource

BEHIND_SECONDS: Final = 0.5
"""How long to wait for a cache that is not complete yet, or that the hub has shown to be behind."""

RECHECK_SECONDS: Final = 30.0
_CONFLICT: Final = "DependencyPolicyConflict"


class DependencyDistributor:
    """Attaches bindings of dependencies to the bindings that require them.

    The informer of ResourceBindings among the sources has `dependencies.BINDING_INDEXES`.
    """

    def __init__(
        self,
        hub_client: Client,
        sources: Sources,
        events: EventRecorder,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self._hub_client = hub_client
        self._templates = sources.templates
        self._bindings = sources.bindings
        self._events = events
        self._random = random
        self._controller = Controller("dependencies", self.reconcile, clock=clock, random=random)
        self._controller.watch(self._bindings, _parents_concerned)
        self._templates.add_handler(self._template_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    async def reconcile(self, request: Request) -> Outcome:
        """Bring the bindings that one binding requires to where they should be."""
        if not self._templates.has_synced:
            return RequeueAfter(BEHIND_SECONDS)
        parent = self._bindings.cache.find(request.key)
        if parent is not None and why_not_carried_here(self._templates, parent):
            # Its template is somebody else's, and so is what that needs; what is attached stays.
            return Done()
        if parent is None or is_being_deleted(parent) or not propagates_dependencies(parent):
            return await self._let_go(request, parent)
        if not clusters_of(parent) and not _is_held(parent):
            return Done()  # not scheduled yet: nobody knows where anything is needed
        template = self._find_template(parent)
        if template is None:
            return RequeueAfter(RECHECK_SECONDS)  # its binding goes with it, or it cannot be seen
        needed = dependencies_in(template)
        if not await self._detach_all_but(needed, parent, template):
            return RequeueAfter(BEHIND_SECONDS)
        place = place_of(RESOURCE_BINDINGS, parent)
        held = await commit(self._hub_client, place, parent, parent_with(parent, needed))
        for dependency in needed:
            await self._attach(dependency, held)
        return Done()

    async def _attach(self, dependency: Dependency, parent: Object) -> None:
        """Make or complete the binding of a dependency; one that is not there is waited for."""
        kind = GroupVersionKind.of(dependency.api_version, dependency.kind)
        template = self._templates.find(kind, dependency.namespace, dependency.name)
        if template is None or is_being_deleted(template):
            return
        place = binding_place(template)
        present = self._bindings.cache.find(place.key)
        if present is None:
            present = await self._create(place, template, parent)
        if present is None or is_being_deleted(present) or not is_own(present, template):
            return  # made just now; or another's, whose deletion is an event
        wanted = self._as_parents_wish(attached(present, template, parent), parent)
        await commit(self._hub_client, place, present, wanted)

    async def _create(self, place: Place, template: Object, parent: Object) -> Object | None:
        """Make the binding; return the one that is there if our cache did not know of it."""
        empty = new_binding(template, permanent_id(self._random))
        wanted = self._as_parents_wish(attached(empty, template, parent), parent)
        try:
            await self._hub_client.create(place.collection, wanted)
        except AlreadyExists:
            return await self._hub_client.get(place)
        return None

    def _as_parents_wish(self, binding: Object, parent: Object) -> Object:
        others = (
            self._bindings.cache.find(key_of(each.namespace, each.name))
            for each in requirers_of(binding)
            if (each.namespace, each.name) != (namespace_of(parent), name_of(parent))
        )
        parents = [parent, *(each for each in others if each is not None)]
        if conflicts := disagreements(parents):
            fields = " and ".join(conflicts)
            message = f"Bindings that require {name_of(binding)} disagree on {fields}"
            self._events.record(parent, _CONFLICT, message, is_warning=True)
        return with_parents_wishes(binding, parents)

    async def _detach_all_but(
        self, needed: Iterable[Dependency], parent: Object, template: Object
    ) -> bool:
        """Let go of what is no longer needed; False when our caches turn out to be behind."""
        kept = {(each.kind, each.namespace, each.name) for each in needed}
        orphans = [each for each in self._attached_to(parent) if _subject_of(each) not in kept]
        if not orphans:
            return True
        resource = self._templates.find_resource(template_of(parent).group_version_kind)
        live = (
            None if resource is None else await self._hub_client.find(place_of(resource, template))
        )
        if live is None or dependencies_in(live) != tuple(needed):
            return False
        for orphan in orphans:
            await self._detach(orphan, namespace_of(parent), name_of(parent))
        return True

    async def _let_go(self, request: Request, parent: Object | None) -> Outcome:
        """Let go of everything a binding required, then of the binding."""
        orphans = self._bindings.cache.objects_at(BY_REQUIRER, request.key)
        if orphans and await self._still_requires(request):
            return RequeueAfter(BEHIND_SECONDS)
        for orphan in orphans:
            await self._detach(orphan, request.namespace, request.name)
        if parent is not None and _is_held(parent):
            place = place_of(RESOURCE_BINDINGS, parent)
            await commit(self._hub_client, place, parent, parent_without(parent))
        return Done()

    async def _still_requires(self, request: Request) -> bool:
        """Make sure, before anything is let go of, that our cache tells the truth."""
        place = Place(RESOURCE_BINDINGS, request.namespace, request.name)
        live = await self._hub_client.find(place)
        if live is None or is_being_deleted(live):
            return False
        return propagates_dependencies(live)

    async def _detach(self, binding: Object, namespace: str, name: str) -> None:
        left = detached(binding, namespace, name)
        keys = (key_of(each.namespace, each.name) for each in requirers_of(left))
        parents = [each for key in keys if (each := self._bindings.cache.find(key)) is not None]
        wanted = with_parents_wishes(left, parents)
        await commit(self._hub_client, place_of(RESOURCE_BINDINGS, binding), binding, wanted)

    def _attached_to(self, parent: Object) -> list[Object]:
        key = key_of(namespace_of(parent), name_of(parent))
        return self._bindings.cache.objects_at(BY_REQUIRER, key)

    def _find_template(self, parent: Object) -> Object | None:
        about = template_of(parent)
        found = self._templates.find(about.group_version_kind, about.namespace, about.name)
        return found if found is not None and uid_of(found) == about.uid else None

    def _template_changed(self, resource: GroupVersionResource, update: Update) -> None:
        """Look at the bindings that need what came, changed or went."""
        kind = DEPENDENCY_KINDS.get(resource.group_resource)
        if kind is None:
            return
        namespace, _, name = update.key.rpartition("/")
        word = dependency_word(kind, namespace, name)
        parents = self._bindings.cache.keys_at(BY_DEPENDENCY, word)
        if parents and _says_something_new(update):
            for key in parents:
                self._controller.add(request_for(key))


def _parents_concerned(update: Update) -> Iterable[Request]:
    """Return the bindings to look at because one changed: itself, and those that require it."""
    before, after = update.decode_before(), update.decode_after()
    if before is not None and after is not None:
        return (request_for(update.key),) if _matters(before, after) else ()
    held = after or before or {}
    requirers = [Request(each.name, each.namespace) for each in requirers_of(held)]
    itself = [request_for(update.key)] if propagates_dependencies(held) or _is_held(held) else []
    return (*requirers, *itself)


def _matters(before: Object, after: Object) -> bool:
    if not any(map(propagates_dependencies, (before, after))) and not _is_held(after):
        return False
    was = before.get("spec"), finalizers_of(before), is_being_deleted(before)
    return was != (after.get("spec"), finalizers_of(after), is_being_deleted(after))


def _says_something_new(update: Update) -> bool:
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None:
        return True
    return users_part(before) != users_part(after)


def _is_held(binding: Object) -> bool:
    return stamps.DEPENDENCIES_FINALIZER in finalizers_of(binding)


def _subject_of(binding: Object) -> tuple[str, str, str]:
    about = template_of(binding)
    return about.kind, about.namespace, about.name
