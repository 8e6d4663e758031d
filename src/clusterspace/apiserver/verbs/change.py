"""Read, edit, check, write; and again when somebody else was quicker.

Every verb that changes an object that is there goes through here: PUT, the four patches, scale.
They differ only in the edit, a plain function from the object there is to the object wanted.
"""

from functools import partial
from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.admission.chain import admit
from clusterspace.apiserver.admissions import Admission
from clusterspace.apiserver.options import WriteOptions
from clusterspace.apiserver.ownership import write_of
from clusterspace.apiserver.store.revisions import KeyValue
from clusterspace.apiserver.verbs.answers import Changed
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, refuse
from clusterspace.apiserver.versions import version_problem
from clusterspace.apiserver.writing import TRIES, Edit, replace_or_remove
from clusterspace.builtins.validation.metadata import check_metadata_update
from clusterspace.errors import RevisionMismatch
from clusterspace.kube import causes, statuses
from clusterspace.kube.managed_fields.managers import are_alike_but_for_times
from clusterspace.kube.managed_fields.update import track_update
from clusterspace.kube.objects import Object, metadata_of

_SERVER_KEPT: Final = (
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "selfLink",
)


async def change(
    ask: ResourceRequest, edit: Edit, options: WriteOptions, *, tracks_fields: bool = True
) -> Changed:
    """Carry out an edit of the object the URL names.

    `tracks_fields` is False for edits that kept the record of field owners themselves (apply).
    """
    run = ask.context.run
    for attempt in range(TRIES):
        entry = await ask.hub.store.get(ask.key)
        if entry is None:
            raise ask.not_found()
        ask.context.weigh(entry.value)
        await ask.context.take_turn()
        old, wanted = await run(partial(_edited, ask, entry, edit))
        _require_version(ask, wanted, entry)
        new = await _finish(ask, wanted, old, options, tracks_fields=tracks_fields)
        if await run(partial(_are_alike, new, old)):
            return Changed(old, entry)
        if options.dry_run:
            return Changed(new, None)
        try:
            return Changed(new, await replace_or_remove(ask.hub, ask.served, entry, new, run))
        except RevisionMismatch as lost:
            # The next look decides: an edit that names a version finds it gone, others go on.
            if attempt == TRIES - 1:
                raise _conflict(ask) from lost
    raise AssertionError("unreachable: the last attempt returns or raises")


def _edited(ask: ResourceRequest, entry: KeyValue, edit: Edit) -> tuple[Object, Object]:
    """Return the object there is and the object wanted."""
    old = forms.decode_stored(entry, ask.served.form)
    return old, edit(old)


def _are_alike(new: Object, old: Object) -> bool:
    # When an owner last looked at its fields is no change.
    return new == old or are_alike_but_for_times(new, old)


def _conflict(ask: ResourceRequest) -> Exception:
    return statuses.conflict(ask.served.info.group_resource, ask.info.name)


def _require_version(ask: ResourceRequest, wanted: Object, entry: KeyValue) -> None:
    """Refuse an edit of a version that is no longer there."""
    given = metadata_of(wanted).get("resourceVersion")
    if not given or given == "0":
        return
    problem = version_problem(str(given))
    if problem:
        found = causes.invalid("metadata.resourceVersion", str(given)[:64], problem)
        raise statuses.invalid(ask.served.info.group_kind, ask.info.name, (found,))
    if int(given) != entry.mod_revision:
        raise _conflict(ask)


async def _finish(
    ask: ResourceRequest, wanted: Object, old: Object, options: WriteOptions, *, tracks_fields: bool
) -> Object:
    """Default, record who owns what, keep what this write may not touch, and check it all."""
    rules, subresource, context = ask.served.rules, ask.info.subresource, ask.context
    run, manager = context.run, options.field_manager
    write = write_of(ask.hub, ask.served, manager=manager, subresource=subresource)

    def prepared() -> Object:
        asked = rules.default(_keep_identity(wanted, old))
        if tracks_fields:
            asked = track_update(old, asked, write)
        return rules.prepare_update(asked, old, subresource)

    asked = await run(prepared)
    admission = Admission(ask.served, context.user, asked, old, subresource, context.warn, run)
    new = await admit(ask.hub, admission)
    # Kubernetes checks metadata twice, once for every kind and once for each: so its answers say.
    found = await run(
        lambda: (*check_metadata_update(new, old), *rules.validate_update(new, old, subresource))
    )
    refuse(ask, old, found)
    return new


def _keep_identity(wanted: Object, old: Object) -> Object:
    """Put back the metadata that no client may change, and that many leave out."""
    there = metadata_of(old)
    kept = {name: there[name] for name in _SERVER_KEPT if name in there}
    given = {k: v for k, v in metadata_of(wanted).items() if k not in _SERVER_KEPT}
    uid = given.get("uid") or there.get("uid")
    return {**wanted, "metadata": {**given, **kept, "uid": uid}}
