"""Create, update, patch, delete; and `change`, through which every object that is there is written.

PUT, the four patches, scale and the other subresources differ only in their edit, a plain function
from the object there is to the object wanted. Reading it, checking the result and writing it, and
doing so again when somebody else was quicker, is the same for all of them.
"""

from typing import Any, Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.http.bodies import Body, media_type_of, read_json, read_yaml
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import PROTOBUF
from clusterspace.apiserver.http.responses import json_response, value_response
from clusterspace.apiserver.options import (
    WriteOptions,
    read_delete_options,
    read_list_options,
    read_write_options,
    select_for,
    version_problem,
)
from clusterspace.apiserver.state import Admission
from clusterspace.apiserver.verbs.read import answer_page_in_protobuf, read_page, spliced_list
from clusterspace.apiserver.verbs.resource_request import (
    Changed,
    ResourceRequest,
    answer_changed,
    answer_entry,
    answer_object,
    complain,
    in_yaml_words,
    place,
    read_incoming,
    refuse,
    require_kind,
    require_name,
)
from clusterspace.apiserver.writing import (
    TRIES,
    Edit,
    begin_new,
    finish_new,
    remove,
    replace_or_remove,
    write_new,
    write_of,
)
from clusterspace.builtins.validation.metadata import check_metadata_update
from clusterspace.builtins.wire_types import WrongType
from clusterspace.errors import ApiError, BadRequest, MalformedObject, NotFound, RevisionMismatch
from clusterspace.kube import causes, statuses
from clusterspace.kube.json_patches import apply_json_patch, apply_merge_patch, parse_json_patch
from clusterspace.kube.managed_fields.apply import apply as apply_fields
from clusterspace.kube.managed_fields.managers import are_alike_but_for_times, track_update
from clusterspace.kube.names import generate_name
from clusterspace.kube.objects import Object, metadata_of, name_of, uid_of
from clusterspace.kube.resources import GroupKind
from clusterspace.kube.strategic_merge import apply_strategic_merge, go_text

_GENERATED_TRIES: Final = 8
"""As kube-apiserver: five random characters collide now and then in a crowded namespace."""

_SERVER_KEPT: Final = (
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "selfLink",
)
"""Metadata that no client may change."""


async def create(request: ResourceRequest) -> Response:
    """Answer POST on a collection."""
    options = read_write_options(
        request.info.query, kind="CreateOptions", user_agent=request.context.header("user-agent")
    )
    incoming = place(request, await read_incoming(request, options.field_validation))
    if metadata_of(incoming).get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    return await create_object(request, incoming, options)


async def create_object(
    request: ResourceRequest, incoming: Object, options: WriteOptions, *, tracks_fields: bool = True
) -> Response:
    """Create an object whose body has been read; apply uses it for what is not there yet."""
    if name_of(incoming) or not metadata_of(incoming).get("generateName"):
        return await _create_named(request, incoming, options, tracks_fields=tracks_fields)
    for attempt in range(_GENERATED_TRIES):
        base = str(metadata_of(incoming)["generateName"])
        metadata = {**metadata_of(incoming), "name": generate_name(base, request.hub.random)}
        named = {**incoming, "metadata": metadata}
        try:
            return await _create_named(request, named, options, tracks_fields=tracks_fields)
        except ApiError as error:
            if error.reason != "AlreadyExists" or attempt == _GENERATED_TRIES - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _create_named(
    request: ResourceRequest, incoming: Object, options: WriteOptions, *, tracks_fields: bool
) -> Response:
    hub, served, context = request.hub, request.served, request.context
    newborn = await context.run(lambda: begin_new(hub, served, incoming, context.user))
    write = write_of(hub, served, manager=options.field_manager) if tracks_fields else None
    new = await finish_new(hub, served, newborn, request.author, write, options)
    if not options.dry_run:
        return await answer_entry(request, 201, await write_new(hub, served, new, context.run))
    if await hub.store.get(served.key(request.info.namespace, name_of(new))) is not None:
        raise statuses.already_exists(served.info.group_resource, name_of(new))
    return await answer_object(request, 201, new)


async def update(request: ResourceRequest) -> Response:
    """Answer PUT on an object or its status."""
    options = read_write_options(
        request.info.query, kind="UpdateOptions", user_agent=request.context.header("user-agent")
    )
    incoming = place(request, await read_incoming(request, options.field_validation))
    if not name_of(incoming):
        raise BadRequest("the name of the object must be given in its metadata")
    require_name(request, incoming)
    rules, version = request.served.rules, metadata_of(incoming).get("resourceVersion")
    exists = await request.hub.store.get(request.key) is not None
    if not exists and rules.creates_on_update and not version and not request.info.subresource:
        return await create_object(request, incoming, options)
    if exists and rules.needs_version_to_update and version in (None, "", "0"):
        why = "must be specified for an update"
        refuse(request, incoming, (causes.invalid("metadata.resourceVersion", 0, why),))

    def replace(old: Object) -> Object:
        if "managedFields" in metadata_of(incoming):
            return incoming
        # A client that left the owners out did not mean to forget them.
        owners = metadata_of(old).get("managedFields")
        if owners is None:
            return incoming
        return {**incoming, "metadata": {**metadata_of(incoming), "managedFields": owners}}

    return await answer_changed(request, await change(request, replace, options))


async def delete(request: ResourceRequest) -> Response:
    """Answer DELETE on an object."""
    options = read_delete_options(request.info.query, await _read_delete_body(request))
    removed = await remove(request.hub, request.served, request.key, options, request.author)
    if removed.entry is not None:
        return await answer_entry(request, 200, removed.entry)
    last = removed.kube_object
    if not removed.is_gone or request.served.returns_deleted:
        return await answer_object(request, 200, last)
    status = statuses.deleted(request.served.info.group_resource, name_of(last), uid_of(last))
    return value_response(request.context, 200, status, request.representation.media_type)


async def delete_collection(request: ResourceRequest) -> Response:
    """Answer DELETE on a collection: each selected object on its own, as one DELETE would."""
    options = read_delete_options(request.info.query, await _read_delete_body(request))
    list_options = read_list_options(request.info.query, is_watch=False)
    selection = await select_for(request.context.user, request.served, list_options)
    page = await read_page(request, list_options, selection)
    for entry in page.entries:
        try:
            await remove(
                request.hub,
                request.served,
                entry.key,
                options,
                request.author,
                is_one_of_many=True,
            )
        except NotFound:
            continue  # somebody else was quicker; gone is gone
    if request.representation.media_type == PROTOBUF:
        return await answer_page_in_protobuf(request, page)
    return json_response(request.context, 200, await spliced_list(request, page))


async def _read_delete_body(request: ResourceRequest) -> Any:
    if not await request.context.read_body():
        return None
    return (await request.read_small_body("DeleteOptions")).value


async def change(
    request: ResourceRequest, edit: Edit, options: WriteOptions, *, tracks_fields: bool = True
) -> Changed:
    """Carry out an edit of the object the URL names; NotFound when there is none.

    `tracks_fields` is False for edits that kept the record of field owners themselves (apply).
    """
    for attempt in range(TRIES):
        try:
            return await _change_once(request, edit, options, tracks_fields=tracks_fields)
        except RevisionMismatch as lost:
            # Somebody wrote between our read and our write. The next look decides: an edit that
            # names a version finds it gone and is refused, others are made on what is there now.
            if attempt == TRIES - 1:
                group_resource = request.served.info.group_resource
                raise statuses.conflict(group_resource, request.info.name) from lost
    raise AssertionError("unreachable: the last attempt returns or raises")


async def _change_once(
    request: ResourceRequest, edit: Edit, options: WriteOptions, *, tracks_fields: bool
) -> Changed:
    """Read, edit, default, record who owns what, admit, check, write; or raise RevisionMismatch.

    When admission is asked, and why more than once, is told in state.py.
    """
    hub, served, context, subresource = (
        request.hub,
        request.served,
        request.context,
        request.info.subresource,
    )
    run, rules = context.run, served.rules
    entry = await hub.store.get(request.key)
    if entry is None:
        raise request.not_found()
    (entry,) = await served.converted((entry,))
    context.weigh(entry.value)
    await context.take_turn()

    def read_and_edit() -> tuple[Object, Object]:
        stored = forms.decode_stored(entry, served.form)
        return stored, edit(stored)

    old, edited = await run(read_and_edit)
    _require_version(request, edited, entry.mod_revision)
    write = write_of(hub, served, manager=options.field_manager, subresource=subresource)

    def complete() -> Object:
        # What only the server sets is put back; clients may leave it out, and may not change it.
        stored, given = metadata_of(old), metadata_of(edited)
        metadata = {k: v for k, v in given.items() if k not in _SERVER_KEPT}
        metadata |= {name: stored[name] for name in _SERVER_KEPT if name in stored}
        metadata["uid"] = given.get("uid") or stored.get("uid")
        desired = rules.default({**edited, "metadata": metadata})
        return track_update(old, desired, write) if tracks_fields else desired

    admission = Admission(
        served,
        context.user,
        await run(complete),
        old,
        subresource,
        context.warn,
        run,
        context.annotate,
        options,
    )
    mutated = await hub.mutate(admission)
    prepared = await run(lambda: rules.prepare_update(mutated, old, subresource))
    admission = admission.about(prepared)
    new = await hub.admit(admission)
    # Kubernetes checks metadata twice, once for every kind and once for each: so its answers say.
    found = await run(
        lambda: (*check_metadata_update(new, old), *rules.validate_update(new, old, subresource))
    )
    refuse(request, old, found)
    await hub.validate(admission.about(new))
    # When an owner last looked at its fields is no change: nothing is written, nobody is woken.
    # Unless it is encrypted otherwise by now: whoever writes it once more has that mended.
    is_same = await run(lambda: new == old or are_alike_but_for_times(new, old))
    if is_same and (options.dry_run or not await hub.store.is_stale(entry.key)):
        return Changed(old, entry)
    if options.dry_run:
        return Changed(new, None)
    return Changed(new, await replace_or_remove(hub, served, entry, new, run))


def _require_version(request: ResourceRequest, edited: Object, current: int) -> None:
    """Refuse an edit that names another version than the one that is stored."""
    given = metadata_of(edited).get("resourceVersion")
    if not given or given == "0":
        return
    problem = version_problem(str(given))
    if problem:
        found = causes.invalid("metadata.resourceVersion", str(given)[:64], problem)
        raise statuses.invalid(request.served.info.group_kind, request.info.name, (found,))
    if int(given) != current:
        raise statuses.conflict(request.served.info.group_resource, request.info.name)


# -- four kinds of patch: three edit what is there, apply says what should be ------------------


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
    body = await request.context.run(lambda: read_patch(raw))
    edit = await request.context.run(lambda: patch_edit(body.value, media_type, request))

    def patched(old: Object) -> Object:
        """Return the patched object in the kind's normal form, as if it had been sent whole."""
        edited = edit(old)
        if edited is old:
            return old
        try:
            if not request.served.is_custom and not _is_typed(edited):
                request.served.rules.read(edited)  # which says what is wrong with it
            checked = require_kind(edited, request.served)
            require_name(request, checked)
            reading = request.served.rules.read(checked)
        except MalformedObject as error:
            # A value of the wrong type is the patch's fault: 422, where a PUT gets 400.
            if media_type == STRATEGIC_PATCH and isinstance(error.__cause__, WrongType):
                shown, why = go_text(body.value), error.__cause__.when_restored()
            else:
                shown = forms.encode(edited).decode()
                why = f"json: {error.message.rpartition(': json: ')[2]}"
            cause = causes.invalid("patch", shown, why)
            raise statuses.invalid(GroupKind("", ""), "", (cause,)) from error
        complain(request, reading.unknown_fields, body, options.field_validation)
        return place(request, reading.kube_object)

    return await answer_changed(request, await change(request, patched, options))


def _is_typed(edited: Object) -> bool:
    """Whether what every object has is of the type that every object has it in."""
    types = (("kind", str), ("apiVersion", str), ("metadata", dict))
    return all(isinstance(edited.get(name), wanted | None) for name, wanted in types)


def require_patch_type(media_type: str, request: ResourceRequest) -> None:
    """Refuse a patch type nobody has, or one this resource does not take."""
    if media_type not in _ALL:
        raise statuses.unknown_media_type()
    if media_type == STRATEGIC_PATCH and request.served.is_custom:
        accepted = tuple(each for each in _ALL if each != STRATEGIC_PATCH)
        raise statuses.unsupported_media_type(accepted)


def read_patch(raw: bytes) -> Body:
    """Read the body of a patch that is JSON."""
    try:
        return read_json(raw)
    except BadRequest as error:
        raise BadRequest(f"error decoding patch: {error.message}") from error


def patch_edit(body: Any, media_type: str, request: ResourceRequest) -> Edit:
    """Return the edit a patch body stands for."""
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
    if body.duplicate_lines and options.field_validation == "Strict":
        wrong = in_yaml_words(body.duplicate_lines)
        raise BadRequest(f"error strict decoding YAML: error converting YAML to JSON: {wrong}")
    complain(request, (), body, options.field_validation)
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
