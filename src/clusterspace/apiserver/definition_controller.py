"""CustomResourceDefinitions become live routes, and end with all their objects.

    created -> names accepted -> served … deleted -> objects gone -> definition gone, routes gone

Every pass starts from what is stored and does what is missing, so a crash anywhere costs a pass.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import structlog

from clusterspace.aio.lanes import HEAVY, Run, at_once
from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.custom_resources import resource_of, served_resources
from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import KeyValue, Revision
from clusterspace.apiserver.writing import (
    SELF,
    Edit,
    begin_new,
    edit_own,
    is_finished,
    remove,
    write_new,
    write_of,
)
from clusterspace.builtins import definitions
from clusterspace.builtins.definitions import (
    DELETED,
    DELETING,
    Definition,
    plan_status,
    read_definition,
    released,
    with_condition,
)
from clusterspace.builtins.normal_form import empty_status
from clusterspace.errors import (
    AlreadyExists,
    Expired,
    MalformedSchema,
    NotFound,
    RevisionMismatch,
    StoreError,
)
from clusterspace.kube.managed_fields.managers import track_update
from clusterspace.kube.objects import Object, metadata_of, name_of, with_metadata

_log = structlog.get_logger(__name__)

Result = TypeVar("Result")

MANAGER: Final = "kube-apiserver"
"""Who owns the status of definitions."""

INSTALLER: Final = "clusterspace"
"""Who owns the definitions of our own kinds."""

_LARGE: Final = 256 * 1024
"""Bytes of a stored definition; Karmada's and Kubernetes' own have less."""

RETRY_SECONDS: Final = 1.0
"""How often objects are looked at again that something holds."""


@dataclass(frozen=True, slots=True)
class _Made:
    """The resources of a definition, with what they were made from."""

    definition: Definition
    resources: tuple[Served, ...]

    def served_from(self, revision: int) -> "_Made":
        """Return the same, for objects up to a revision being stored as they were before."""
        resources = (
            replace(each, form=replace(each.form, renewed_upto=revision)) for each in self.resources
        )
        made = _Made(self.definition, tuple(resources))
        for each in made.resources:
            if each.webhook is not None:
                each.webhook.replace(each)
        return made


class CustomResourceController:
    """Follows definitions and keeps the catalog true to them."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._made: dict[str, _Made] = {}
        self._decoded: dict[str, tuple[Revision, Object]] = {}
        """The definitions at their last revision: every change looks at all of them."""
        self._run: Run = at_once

    async def install(self, definitions: Iterable[Object]) -> None:
        """Create our own definitions, or bring those that are there up to date.

        They are not read and checked as a user's are: they are part of the program, tests show
        that they are in normal form and that every rule takes them, and looking through all their
        schemas would be most of a hub's start.
        """
        hub, served = self._hub, self._served
        blank = {"status": empty_status(served.info.group_version_kind)}
        for wanted in definitions:
            newborn = begin_new(hub, served, {**wanted, **blank}, SELF)
            write = write_of(hub, served, manager=INSTALLER)
            owned = track_update(None, newborn.kube_object, write)
            prepared = served.rules.prepare_create(owned, newborn.creation)
            try:
                self._remember(await write_new(hub, served, prepared), prepared)
            except AlreadyExists:
                await self._update(wanted)

    async def load(self) -> None:
        """Serve what is defined, before anybody asks."""
        await self._publish(await self._settle(await self._stored()))

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self._follow()
            except (Expired, StoreError) as error:
                _log.warning("definitions are listed again", reason=str(error))
                await self._hub.clock.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        hub = self._hub
        while True:
            # Taken before the definitions are read: what changes meanwhile, by our own status
            # writes too, wakes the watch below at once. One pass too many, never one too few.
            seen = hub.store.current_revision
            settled = await self._settle(await self._stored())
            await self._publish(settled)
            if await self._end(settled):
                await hub.clock.sleep(RETRY_SECONDS)
                continue
            watch = hub.store.watch(self._served.prefix(), after=seen)
            try:
                async for _events in watch:
                    break
            finally:
                watch.close()

    @property
    def _served(self) -> Served:
        return self._hub.catalog.get_storage(definitions.GROUP, definitions.PLURAL)

    async def _stored(self) -> list[Object]:
        """Return the definitions, oldest first: who came first has the names."""
        page = await self._hub.store.range(self._served.prefix())
        entries = sorted(page.items, key=lambda entry: entry.create_revision)
        form, before = self._served.form, self._decoded
        # Off the loop only where it takes long: most definitions are read in a millisecond.
        self._run = _off_loop if any(len(e.value) > _LARGE for e in entries) else at_once

        def decode_all() -> dict[str, tuple[Revision, Object]]:
            decoded: dict[str, tuple[Revision, Object]] = {}
            for entry in entries:
                known = before.get(entry.key)
                if known is None or known[0] != entry.mod_revision:
                    known = (entry.mod_revision, forms.decode_stored(entry, form))
                decoded[entry.key] = known
            return decoded

        # Nobody changes a decoded definition: edits are made of copies, from what is stored then.
        self._decoded = await self._run(decode_all)
        return [crd_object for _, crd_object in self._decoded.values()]

    async def _update(self, wanted: Object) -> None:
        """Replace what an installed definition says, and leave its status and labels alone."""
        served = self._served
        rules = served.rules
        meant = rules.default(wanted)

        def edit(old: Object) -> Object:
            return rules.prepare_update({**old, "spec": meant["spec"]}, old, "")

        write = write_of(self._hub, served, manager=INSTALLER)
        await edit_own(self._hub, served, served.key("", name_of(wanted)), edit, write=write)

    async def _settle(self, stored: list[Object]) -> list[Object]:
        """Give every definition its names and conditions; return them all as they are then."""
        settled = list(stored)
        # Names are given out within a group: whoever looks at all others looks at them squared.
        groups: dict[str, list[int]] = {}
        for index, crd_object in enumerate(stored):
            groups.setdefault(crd_object["spec"]["group"], []).append(index)

        def others_of(crd_object: Object) -> list[Object]:
            return [settled[each] for each in groups.get(crd_object["spec"]["group"], ())]

        for index, crd_object in enumerate(stored):
            if metadata_of(crd_object).get("deletionTimestamp"):
                continue
            status = plan_status(crd_object, others_of(crd_object), self._hub.clock.now())
            if status == crd_object.get("status"):
                continue

            def edit(old: Object, planned: Object = status, seen: Object = crd_object) -> Object:
                # Planned again if something else is stored by now.
                if old is not seen:
                    planned = plan_status(old, others_of(old), self._hub.clock.now())
                return {**old, "status": planned}

            written = await self._edit(name_of(crd_object), edit)
            settled[index] = written if written is not None else crd_object
        return settled

    async def _edit(self, name: str, edit: Edit) -> Object | None:
        """Change a definition as its controller; None when it is gone."""
        hub, served = self._hub, self._served
        write = write_of(hub, served, manager=MANAGER, subresource="status")
        key = served.key("", name)
        known = self._decoded.get(key)
        if known is not None and self._run is at_once:
            # Most have not changed since they were read. If this one has, the store says so.
            revision, old = known
            new = edit(old)
            if new == old:
                return old
            owned = track_update(old, new, write)
            if not is_finished(owned):
                stored = forms.encode_stored(owned, served.form)
                with contextlib.suppress(RevisionMismatch):
                    entry = await hub.store.put(key, stored, expected=revision)
                    return self._remember(entry, owned)
        entry = await edit_own(hub, served, key, edit, write=write)
        if entry is None:
            return None
        return self._remember(entry, forms.decode_stored(entry, served.form))

    def _remember(self, entry: KeyValue, crd_object: Object) -> Object:
        """Keep a definition as it was stored, so that nobody has to read it again."""
        written = with_metadata(crd_object, resourceVersion=str(entry.mod_revision))
        self._decoded[entry.key] = (entry.mod_revision, written)
        return written

    async def _publish(self, settled: list[Object]) -> None:
        """Serve exactly what is defined; end the watches of what no longer is."""
        before = self._made

        def make_all() -> dict[str, _Made]:
            made: dict[str, _Made] = {}
            for crd_object in settled:
                definition = read_definition(crd_object)
                existing = before.get(definition.name)
                if existing is not None and existing.definition == definition:
                    made[definition.name] = existing
                    continue
                resources: tuple[Served, ...] = ()
                try:
                    resources = served_resources(definition, self._hub.webhooks)
                except MalformedSchema as malformed:
                    # Refused on the way in; one that is stored anyway must not take the others
                    # with it.
                    reason = str(malformed)
                    _log.error("definition not served", definition=definition.name, reason=reason)
                made[definition.name] = _Made(definition, resources)
            return made

        # This may run off the loop. Nobody else changes what was made, so it is still the same
        # when this comes back.
        made = await self._run(make_all)
        gone = self._prefixes(self._made) - self._prefixes(made)
        if made != self._made:
            if before:
                # Objects that were written since the definition was are as it was before. After a
                # start there are none: nothing is written before the definitions are served.
                now = self._hub.store.current_revision
                for name, each in made.items():
                    if each is not before.get(name):
                        made[name] = each.served_from(now)
            self._made = made
            self._hub.catalog.replace_custom(
                each for kept in made.values() for each in kept.resources
            )
        for prefix in gone:
            self._hub.feeds.end_all(prefix=prefix)

    def _prefixes(self, made: dict[str, _Made]) -> set[str]:
        return {each.prefix() for kept in made.values() for each in kept.resources}

    async def _end(self, settled: list[Object]) -> bool:
        """Take the ending definitions a step further; say whether any has to wait."""
        waits = False
        for crd_object in settled:
            definition = read_definition(crd_object)
            finalizers = metadata_of(crd_object).get("finalizers") or ()
            if definition.is_ending and definitions.FINALIZER in finalizers:
                waits = not await self._end_one(definition) or waits
        return waits

    async def _end_one(self, definition: Definition) -> bool:
        """Delete the objects of a definition; when none is left, let it go."""
        storage = next(each for each in definition.versions if each.is_storage)
        # By the storage version alone: what is deleted is not converted.
        served, now = resource_of(definition, storage), self._hub.clock.now()
        page = await self._hub.store.range(served.prefix())
        if page.items:
            await self._edit(definition.name, lambda old: with_condition(old, DELETING, now))
        for entry in page.items:
            with contextlib.suppress(NotFound):
                await remove(self._hub, served, entry.key, DeleteOptions(), None)
        # Counted, not concluded from the removals: finalizers may hold some, and a create that
        # was under way when the definition began to end may have come through since.
        if await self._hub.store.count(served.prefix()):
            return False
        await self._edit(definition.name, lambda old: released(with_condition(old, DELETED, now)))
        return True


async def _off_loop(work: Callable[[], Result]) -> Result:
    """Work on definitions beside the event loop: one may have a schema of a megabyte."""
    return await HEAVY.run(INSTALLER, work)
