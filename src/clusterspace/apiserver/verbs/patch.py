"""Four kinds of patch: three that edit what is there, and apply, which says what should be."""

from typing import Any, Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.http.bodies import media_type_of, read_json, read_yaml
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.options import WriteOptions, read_write_options
from clusterspace.apiserver.ownership import write_of
from clusterspace.apiserver.rules import Reading
from clusterspace.apiserver.verbs.answers import answer_changed
from clusterspace.apiserver.verbs.change import change
from clusterspace.apiserver.verbs.create import create_object
from clusterspace.apiserver.verbs.resource_request import (
    ResourceRequest,
    complain,
    place,
    require_kind,
    require_name,
)
from clusterspace.apiserver.writing import Edit
from clusterspace.errors import BadRequest, MalformedObject
from clusterspace.kube import causes, statuses
from clusterspace.kube.managed_fields.apply import apply as apply_fields
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.patches.json_patch import apply_json_patch, parse_json_patch
from clusterspace.kube.patches.merge_patch import apply_merge_patch
from clusterspace.kube.patches.strategic import apply_strategic_merge
from clusterspace.kube.resources import GroupKind

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

_ALL: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


async def patch(ask: ResourceRequest) -> Response:
    """Answer PATCH on an object or its status."""
    media_type = media_type_of(ask.context.header("content-type"))
    require_patch_type(media_type, ask)
    is_apply = media_type == APPLY_PATCH
    options = read_write_options(
        ask.info.query,
        kind="PatchOptions",
        user_agent=ask.context.header("user-agent"),
        is_apply=is_apply,
    )
    raw = await ask.read_raw_body()
    if is_apply:
        return await _apply(ask, raw, options)
    edit = await ask.context.run(lambda: patch_edit(raw, media_type, ask))
    changed = await change(ask, _normalized(ask, edit, options), options)
    return await answer_changed(ask, changed)


def require_patch_type(media_type: str, ask: ResourceRequest) -> None:
    """Refuse a patch type nobody has, or one this resource does not take."""
    if media_type not in _ALL:
        raise statuses.unknown_media_type()
    if media_type == STRATEGIC_PATCH and ask.served.is_custom:
        accepted = tuple(each for each in _ALL if each != STRATEGIC_PATCH)
        raise statuses.unsupported_media_type(accepted)


def patch_edit(raw: bytes, media_type: str, ask: ResourceRequest) -> Edit:
    """Return the edit a patch body stands for."""
    body = _read_patch(raw)
    if media_type == JSON_PATCH:
        operations = parse_json_patch(body)
        return lambda old: apply_json_patch(old, operations)
    if media_type == MERGE_PATCH:
        return lambda old: apply_merge_patch(old, body)
    schema = ask.served.rules.schema
    return lambda old: apply_strategic_merge(old, body, schema)


def _read_patch(raw: bytes) -> Any:
    try:
        return read_json(raw).value
    except BadRequest as error:
        raise BadRequest(f"error decoding patch: {error.message}") from error


def _normalized(ask: ResourceRequest, edit: Edit, options: WriteOptions) -> Edit:
    """Bring what a patch made into the kind's normal form, as if it had been sent whole."""

    def edited(old: Object) -> Object:
        patched = edit(old)
        if patched is old:
            return old
        checked = require_kind(patched, ask.served)
        require_name(ask, checked)
        reading = _read_patched(ask, checked)
        complain(ask, reading.unknown_fields, (), options.field_validation)
        return place(ask, reading.kube_object)

    return edited


def _read_patched(ask: ResourceRequest, patched: Object) -> Reading:
    """Read what a patch made; a value of the wrong type is the patch's fault: 422, not 400."""
    try:
        return ask.served.rules.read(patched)
    except MalformedObject as error:
        why = error.message.rpartition(": json: ")[2]
        shown = forms.encode(patched).decode()
        cause = causes.invalid("patch", shown, f"json: {why}")
        raise statuses.invalid(GroupKind("", ""), "", (cause,)) from error


async def _apply(ask: ResourceRequest, raw: bytes, options: WriteOptions) -> Response:
    body = await ask.context.run(lambda: read_yaml(raw))
    complain(ask, (), body.duplicates, options.field_validation)
    named = require_kind(body.value, ask.served)
    require_name(ask, named)
    applied = {**named, "metadata": {**metadata_of(named), "name": ask.info.name}}
    place(ask, applied)
    if await ask.hub.store.get(ask.key) is None:
        if ask.info.subresource:
            raise ask.not_found()
        return await _apply_new(ask, applied, options)

    def merged(old: Object) -> Object:
        return _merged(ask, old, applied, options)

    return await answer_changed(ask, await change(ask, merged, options, tracks_fields=False))


def _merged(
    ask: ResourceRequest, old: Object | None, applied: Object, options: WriteOptions
) -> Object:
    """Merge what was said, and nothing the normal form would add to it, into what is there.

    Who applies owns what they said: a `status: {}` that only the server writes must not become
    theirs. So the normal form is that of the result, not of the applied configuration.
    """
    write = write_of(
        ask.hub, ask.served, manager=options.field_manager, subresource=ask.info.subresource
    )
    result = apply_fields(old, applied, write, force=options.force)
    return result if result is old else place(ask, ask.served.rules.read(result).kube_object)


async def _apply_new(ask: ResourceRequest, applied: Object, options: WriteOptions) -> Response:
    if metadata_of(applied).get("uid"):
        raise statuses.conflict(
            ask.served.info.group_resource,
            ask.info.name,
            f"uid mismatch: the provided object specified uid {metadata_of(applied)['uid']}, "
            "and no existing object was found",
        )
    owned = await ask.context.run(lambda: _merged(ask, None, applied, options))
    return await create_object(ask, owned, options, tracks_fields=False)
