"""Subresources with rules of their own: scale, bindings, evictions, finalize, connections."""

from collections.abc import Mapping
from typing import Any, Final, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import ScalePaths
from clusterspace.apiserver.http.bodies import media_type_of
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import Query
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.options import read_delete_options, read_write_options
from clusterspace.apiserver.state import Admission, Operation
from clusterspace.apiserver.verbs.evictions import evict
from clusterspace.apiserver.verbs.resource_request import (
    Changed,
    ResourceRequest,
    Verb,
    answer_changed,
    read_incoming,
    refuse,
    represent,
    require_name,
)
from clusterspace.apiserver.verbs.write import (
    APPLY_PATCH,
    change,
    patch_edit,
    read_patch,
    require_patch_type,
)
from clusterspace.builtins.printers.registry import printer_for
from clusterspace.errors import BadRequest
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import Object, find_at, metadata_of, with_value
from clusterspace.kube.resources import GroupResource
from clusterspace.kube.selectors import label_selector_of

_SCALE_PRINTER: Final = printer_for("autoscaling", "Scale")
_CREATED: Final[Object] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


# -- the replicas of anything that has them, as an autoscaling/v1 Scale ---------------------------


async def get_scale(request: ResourceRequest) -> Response:
    """Answer GET on the scale subresource."""
    entry = await request.hub.store.get(request.key)
    if entry is None:
        raise request.not_found()
    (entry,) = await request.served.converted((entry,))
    return _answer_scale(request, forms.decode_stored(entry, request.served.form))


async def update_scale(request: ResourceRequest) -> Response:
    """Answer PUT: take the replicas from a whole Scale."""
    options = read_write_options(
        request.info.query, kind="UpdateOptions", user_agent=request.context.header("user-agent")
    )
    body: Any = (await request.read_small_body(request.served.info.kind)).value
    if not isinstance(body, dict) or body.get("kind") not in (None, "Scale"):
        raise BadRequest("the object provided is unrecognized (must be of type Scale)")
    scale = cast("Object", body)
    require_name(request, scale)
    changed = await change(request, lambda old: _with_scale(request, old, scale), options)
    return await _answer_changed_scale(request, changed)


async def patch_scale(request: ResourceRequest) -> Response:
    """Answer PATCH: patch the Scale, then take the replicas from it."""
    media_type = media_type_of(request.context.header("content-type"))
    require_patch_type(media_type, request)
    if media_type == APPLY_PATCH:
        raise statuses.unsupported_media_type(
            ("application/json-patch+json", "application/merge-patch+json")
        )
    options = read_write_options(
        request.info.query, kind="PatchOptions", user_agent=request.context.header("user-agent")
    )
    raw = await request.read_raw_body()
    edit = await request.context.run(lambda: patch_edit(read_patch(raw).value, media_type, request))
    paths = _paths(request)
    changed = await change(
        request, lambda old: _with_scale(request, old, edit(scale_of(old, paths))), options
    )
    return await _answer_changed_scale(request, changed)


def scale_of(kube_object: Object, paths: ScalePaths) -> Object:
    """Return the Scale of an object."""
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {k: v for k, v in metadata_of(kube_object).items() if k in shown}
    replicas = find_at(kube_object, *paths.spec_replicas)
    status: Object = {"replicas": find_at(kube_object, *paths.status_replicas) or 0}
    selector = find_at(kube_object, *paths.selector) if paths.selector else None
    if isinstance(selector, str) and selector:
        status["selector"] = selector  # custom kinds store it as text
    elif selector:
        # A ReplicationController's selector is bare labels.
        is_bare = "matchLabels" not in selector and "matchExpressions" not in selector
        status["selector"] = str(
            label_selector_of({"matchLabels": selector} if is_bare else selector)
        )
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _paths(request: ResourceRequest) -> ScalePaths:
    if request.served.scale is None:
        raise statuses.unknown_path()
    return request.served.scale


def _with_scale(request: ResourceRequest, old: Object, scale: Object) -> Object:
    """Return the object with the replicas that a Scale says."""
    replicas = find_at(scale, "spec", "replicas") or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise BadRequest("Scale.spec.replicas must be an integer")
    if replicas < 0:
        why = "must be greater than or equal to 0"
        refuse(request, old, (causes.invalid("spec.replicas", replicas, why),))
    scaled = with_value(old, replicas, *_paths(request).spec_replicas)
    version = metadata_of(scale).get("resourceVersion")
    return {**scaled, "metadata": {**metadata_of(scaled), "resourceVersion": version}}


async def _answer_changed_scale(request: ResourceRequest, changed: Changed) -> Response:
    if changed.entry is None:
        return _answer_scale(request, changed.kube_object)
    (entry,) = await request.served.converted((changed.entry,))
    return _answer_scale(request, forms.decode_stored(entry, request.served.form))


def _answer_scale(request: ResourceRequest, kube_object: Object) -> Response:
    shown = represent(request, scale_of(kube_object, _paths(request)), _SCALE_PRINTER)
    return value_response(request.context, 200, shown, request.representation.media_type)


# -- namespaces and pods ---------------------------------------------------------------------------


async def finalize_namespace(request: ResourceRequest) -> Response:
    """Answer PUT on `namespaces/finalize`: change the namespace's own finalizers, nothing else."""
    options = read_write_options(
        request.info.query, kind="UpdateOptions", user_agent=request.context.header("user-agent")
    )
    incoming = await read_incoming(request, options.field_validation)
    require_name(request, incoming)
    finalizers: Any = find_at(incoming, "spec", "finalizers")

    def finalized(old: Object) -> Object:
        version = metadata_of(incoming).get("resourceVersion")
        edited = with_value(old, finalizers or [], "spec", "finalizers")
        return {**edited, "metadata": {**metadata_of(edited), "resourceVersion": version}}

    return await answer_changed(request, await change(request, finalized, options))


async def evict_pod(request: ResourceRequest) -> Response:
    """Answer POST on `pods/eviction`: a delete that a disruption budget may refuse with 429."""
    eviction = await _read_object(request, "Eviction")
    delete_options = cast("Object", eviction.get("deleteOptions") or {})
    options = read_delete_options(request.info.query, delete_options)
    await evict(request, options)
    return value_response(request.context, 201, _CREATED, request.representation.media_type)


async def bind_pod(request: ResourceRequest) -> Response:
    """Answer POST on `pods/binding`: put a pod on a node."""
    options = read_write_options(
        request.info.query, kind="CreateOptions", user_agent=request.context.header("user-agent")
    )
    node = find_at(await _read_object(request, "Binding"), "target", "name")
    if not isinstance(node, str) or not node:
        raise BadRequest("a binding names the node in target.name")

    def bound(pod: Object) -> Object:
        current = find_at(pod, "spec", "nodeName")
        if current:
            why = f"pod {request.info.name} is already assigned to node {statuses.quoted(current)}"
            raise statuses.conflict(GroupResource("", "pods/binding"), request.info.name, why)
        return with_value(pod, node, "spec", "nodeName")

    await change(request, bound, options)
    return value_response(request.context, 201, _CREATED, request.representation.media_type)


async def _read_object(request: ResourceRequest, kind: str) -> Object:
    """Read a body that says what to do with the object the URL names."""
    body = (await request.read_small_body(kind)).value
    if not isinstance(body, dict):
        raise BadRequest("the body must be an object")
    kube_object: Object = {"metadata": {}, **cast("Object", body)}
    require_name(request, kube_object)
    return kube_object


SUBRESOURCE_VERBS: Final[Mapping[tuple[str, str], Verb]] = {
    ("/namespaces/finalize", "update"): finalize_namespace,
    ("/pods/eviction", "create"): evict_pod,
    ("/pods/binding", "create"): bind_pod,
}
"""By `group/resource/subresource` and verb; scale is not here, because any resource may have it."""


# -- connections into what runs, as admission is asked of them -------------------------------------
#
# Admission sees the options of a connection as an object: `PodExecOptions` and its like, filled
# from the query. It is asked before anything is looked up, as for every other request.

CONNECTIONS: Final = frozenset({"attach", "exec", "portforward", "proxy"})
"""Subresources that are connected to, whatever the method."""

_FLAGS: Final = ("stdin", "stdout", "stderr", "tty")
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "attach": (*_FLAGS, "container"),
    "exec": (*_FLAGS, "container", "command"),
    "portforward": ("ports",),
    "proxy": ("path",),
}


async def admit_connection(request: ResourceRequest) -> None:
    """Ask every plug-in about a connection; raises the ApiError of one that refuses it."""
    hub, context, info = request.hub, request.context, request.info
    subresource = request.served.info.find_subresource(info.subresource)
    if subresource is None or not hub.is_asked_about(Operation.CONNECT):
        return
    kind = subresource.group_version_kind
    fields = _FIELDS[info.subresource]
    options: Object = {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        **_read_fields(info.query, fields),
    }
    if "path" in fields and info.rest:
        options["path"] = "/" + "/".join(info.rest)
    admission = Admission(
        request.served,
        context.user,
        options,
        subresource=info.subresource,
        warn=context.warn,
        run=context.run,
        annotate=context.annotate,
        other=Operation.CONNECT,
        place=(info.namespace, info.name),
    )
    await hub.mutate(admission)
    await hub.admit(admission)
    await hub.validate(admission)


def _read_fields(query: Query, names: tuple[str, ...]) -> Object:
    """Return what the query says of these fields; what it leaves out is left out."""
    read: Object = {}
    for name in names:
        if name in _FLAGS:
            if query.is_true(name):
                read[name] = True
        elif name == "command":
            read[name] = list(query.get_all(name))
        elif name == "ports":
            given = [int(each) for each in query.get_all(name) if each.isdecimal()]
            if given:
                read[name] = given
        elif query.get(name):
            read[name] = query.get(name)
    return read
