"""Four kinds of patch: three that edit what is there, and apply, which says what should be."""

from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.http.bodies import media_type_of, read_json, read_yaml
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.options import WriteOptions, read_write_options
from clusterspace.apiserver.verbs.resource_request import (
    ResourceRequest,
    answer_changed,
    complain,
    place,
    require_kind,
    require_name,
)
from clusterspace.apiserver.verbs.write import change, create_object
from clusterspace.apiserver.writing import Edit, write_of
from clusterspace.errors import BadRequest, MalformedObject
from clusterspace.kube import causes, statuses
from clusterspace.kube.json_patches import apply_json_patch, apply_merge_patch, parse_json_patch
from clusterspace.kube.managed_fields.apply import apply as apply_fields
from clusterspace.kube.objects import Object, metadata_of
from clusterspace.kube.resources import GroupKind
from clusterspace.kube.strategic_merge import apply_strategic_merge

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

_ALL: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


async def patch(request: ResourceRequest) -> Response:
    """Answer PATCH on an object or its status."""
    media_type = media_type_of(request.context.header("content-type"))
    require_patch_type(media_type, request)
    is_apply = media_type == APPLY_PATCH
    options = read_write_options(
        request.info.query,
        kind="PatchOptions",
        user_agent=request.context.header("user-agent"),
        is_apply=is_apply,
    )
    raw = await request.read_raw_body()
    if is_apply:
        return await _apply(request, raw, options)
    edit = await request.context.run(lambda: patch_edit(raw, media_type, request))

    def patched(old: Object) -> Object:
        """Return the patched object in the kind's normal form, as if it had been sent whole."""
        edited = edit(old)
        if edited is old:
            return old
        checked = require_kind(edited, request.served)
        require_name(request, checked)
        try:
            reading = request.served.rules.read(checked)
        except MalformedObject as error:
            # A value of the wrong type is the patch's fault: 422, where a PUT gets 400.
            why = error.message.rpartition(": json: ")[2]
            shown = forms.encode(checked).decode()
            cause = causes.invalid("patch", shown, f"json: {why}")
            raise statuses.invalid(GroupKind("", ""), "", (cause,)) from error
        complain(request, reading.unknown_fields, (), options.field_validation)
        return place(request, reading.kube_object)

    return await answer_changed(request, await change(request, patched, options))


def require_patch_type(media_type: str, request: ResourceRequest) -> None:
    """Refuse a patch type nobody has, or one this resource does not take."""
    if media_type not in _ALL:
        raise statuses.unknown_media_type()
    if media_type == STRATEGIC_PATCH and request.served.is_custom:
        accepted = tuple(each for each in _ALL if each != STRATEGIC_PATCH)
        raise statuses.unsupported_media_type(accepted)


def patch_edit(raw: bytes, media_type: str, request: ResourceRequest) -> Edit:
    """Return the edit a patch body stands for."""
    try:
        body = read_json(raw).value
    except BadRequest as error:
        raise BadRequest(f"error decoding patch: {error.message}") from error
    if media_type == JSON_PATCH:
        operations = parse_json_patch(body)
        return lambda old: apply_json_patch(old, operations)
    if media_type == MERGE_PATCH:
        return lambda old: apply_merge_patch(old, body)
    schema = request.served.rules.schema
    return lambda old: apply_strategic_merge(old, body, schema)


async def _apply(request: ResourceRequest, raw: bytes, options: WriteOptions) -> Response:
    """Merge a configuration into the object, or create the object from it."""
    info, served = request.info, request.served
    body = await request.context.run(lambda: read_yaml(raw))
    complain(request, (), body.duplicates, options.field_validation)
    named = require_kind(body.value, served)
    require_name(request, named)
    applied = {**named, "metadata": {**metadata_of(named), "name": info.name}}
    place(request, applied)
    write = write_of(
        request.hub, served, manager=options.field_manager, subresource=info.subresource
    )

    def merge(old: Object | None) -> Object:
        # Who applies owns what they said, and nothing the normal form would add to it: a
        # `status: {}` that only the server writes must not become theirs. So the normal form is
        # that of the result, not of the applied configuration.
        result = apply_fields(old, applied, write, force=options.force)
        return result if result is old else place(request, served.rules.read(result).kube_object)

    if await request.hub.store.get(request.key) is not None:
        changed = await change(request, merge, options, tracks_fields=False)
        return await answer_changed(request, changed)
    if info.subresource:
        raise request.not_found()
    uid = metadata_of(applied).get("uid")
    if uid:
        raise statuses.conflict(
            served.info.group_resource,
            info.name,
            f"uid mismatch: the provided object specified uid {uid}, "
            "and no existing object was found",
        )
    merged = await request.context.run(lambda: merge(None))
    return await create_object(request, merged, options, tracks_fields=False)
