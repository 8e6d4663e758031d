"""The replicas of anything that has them, as an autoscaling/v1 Scale."""

from typing import Any, Final, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import ScalePaths
from clusterspace.apiserver.http.bodies import media_type_of
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.options import read_write_options
from clusterspace.apiserver.verbs.answers import Changed, represent
from clusterspace.apiserver.verbs.change import change
from clusterspace.apiserver.verbs.patch import APPLY_PATCH, patch_edit, require_patch_type
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, refuse, require_name
from clusterspace.builtins.printers.registry import printer_for
from clusterspace.errors import BadRequest
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import Object, find_at, metadata_of, with_value
from clusterspace.kube.selectors import label_selector_of

_PRINTER: Final = printer_for("autoscaling", "Scale")


async def get_scale(ask: ResourceRequest) -> Response:
    """Answer GET on the scale subresource."""
    entry = await ask.hub.store.get(ask.key)
    if entry is None:
        raise ask.not_found()
    scale = scale_of(forms.decode_stored(entry, ask.served.form), _paths(ask))
    return _answer_scale(ask, scale)


async def update_scale(ask: ResourceRequest) -> Response:
    """Answer PUT: take the replicas from a whole Scale."""
    options = read_write_options(
        ask.info.query, kind="UpdateOptions", user_agent=ask.context.header("user-agent")
    )
    body: Any = (await ask.read_small_body(ask.served.info.kind)).value
    if not isinstance(body, dict) or body.get("kind") not in (None, "Scale"):
        raise BadRequest("the object provided is unrecognized (must be of type Scale)")
    wanted = cast("Object", body)
    require_name(ask, wanted)
    changed = await change(ask, lambda old: _scaled(ask, old, wanted), options)
    return _answer(ask, changed)


async def patch_scale(ask: ResourceRequest) -> Response:
    """Answer PATCH: patch the Scale, then take the replicas from it."""
    media_type = media_type_of(ask.context.header("content-type"))
    require_patch_type(media_type, ask)
    if media_type == APPLY_PATCH:
        raise statuses.unsupported_media_type(
            ("application/json-patch+json", "application/merge-patch+json")
        )
    options = read_write_options(
        ask.info.query, kind="PatchOptions", user_agent=ask.context.header("user-agent")
    )
    raw = await ask.read_raw_body()
    edit = await ask.context.run(lambda: patch_edit(raw, media_type, ask))
    paths = _paths(ask)
    changed = await change(ask, lambda old: _scaled(ask, old, edit(scale_of(old, paths))), options)
    return _answer(ask, changed)


def scale_of(kube_object: Object, paths: ScalePaths) -> Object:
    """Return the Scale of an object."""
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = {k: v for k, v in metadata_of(kube_object).items() if k in shown}
    replicas = find_at(kube_object, *paths.spec_replicas)
    status: Object = {"replicas": find_at(kube_object, *paths.status_replicas) or 0}
    selector = find_at(kube_object, *paths.selector) if paths.selector else None
    if selector:
        status["selector"] = _selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector_text(selector: Any) -> str:
    if isinstance(selector, str):
        return selector
    if "matchLabels" in selector or "matchExpressions" in selector:
        return str(label_selector_of(selector))
    return str(label_selector_of({"matchLabels": selector}))


def _paths(ask: ResourceRequest) -> ScalePaths:
    if ask.served.scale is None:
        raise statuses.unknown_path()
    return ask.served.scale


def _scaled(ask: ResourceRequest, old: Object, wanted: Object) -> Object:
    """Return the object with the replicas a Scale asks for."""
    replicas = find_at(wanted, "spec", "replicas") or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise BadRequest("Scale.spec.replicas must be an integer")
    if replicas < 0:
        why = "must be greater than or equal to 0"
        refuse(ask, old, (causes.invalid("spec.replicas", replicas, why),))
    scaled = with_value(old, replicas, *_paths(ask).spec_replicas)
    version = metadata_of(wanted).get("resourceVersion")
    metadata = {**metadata_of(scaled), "resourceVersion": version}
    return {**scaled, "metadata": metadata}


def _answer(ask: ResourceRequest, changed: Changed) -> Response:
    held = changed.kube_object
    if changed.entry is not None:
        held = forms.decode_stored(changed.entry, ask.served.form)
    return _answer_scale(ask, scale_of(held, _paths(ask)))


def _answer_scale(ask: ResourceRequest, scale: Object) -> Response:
    shown = represent(ask, scale, _PRINTER)
    return value_response(ask.context, 200, shown, ask.representation.media_type)
