"""Subresources with rules of their own: the end of a namespace, evictions, bindings."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.http.bodies import Body
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.options import read_delete_options, read_write_options
from clusterspace.apiserver.removal import remove
from clusterspace.apiserver.verbs.answers import answer_changed
from clusterspace.apiserver.verbs.change import change
from clusterspace.apiserver.verbs.resource_request import (
    ResourceRequest,
    read_incoming,
    require_name,
)
from clusterspace.errors import BadRequest
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at, metadata_of, with_value
from clusterspace.kube.resources import GroupResource
from clusterspace.kube.selectors import label_selector_of

Verb: TypeAlias = Callable[[ResourceRequest], Awaitable[Response | None]]

_SUCCESS: Final[Object] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
}


async def finalize_namespace(ask: ResourceRequest) -> Response:
    """Answer PUT on `namespaces/finalize`: change the namespace's own finalizers, nothing else."""
    options = read_write_options(
        ask.info.query, kind="UpdateOptions", user_agent=ask.context.header("user-agent")
    )
    incoming = await read_incoming(ask, options.field_validation)
    require_name(ask, incoming)
    finalizers: Any = find_at(incoming, "spec", "finalizers")

    def finalized(old: Object) -> Object:
        version = metadata_of(incoming).get("resourceVersion")
        asked = with_value(old, finalizers or [], "spec", "finalizers")
        return {**asked, "metadata": {**metadata_of(asked), "resourceVersion": version}}

    return await answer_changed(ask, await change(ask, finalized, options))


async def evict_pod(ask: ResourceRequest) -> Response:
    """Answer POST on `pods/eviction`: a delete that the pod's budget may refuse."""
    body = _object(await ask.read_small_body("Eviction"))
    require_name(ask, body)
    held = cast("Object", body.get("deleteOptions") or {})
    options = read_delete_options(ask.info.query, held)
    await _refuse_disruption(ask)
    await remove(ask.hub, ask.served, ask.key, options)
    return value_response(ask.context, 201, {**_SUCCESS, "code": 201})


async def _refuse_disruption(ask: ResourceRequest) -> None:
    """Ask the pod's disruption budgets; one that allows none answers 429."""
    entry = await ask.hub.store.get(ask.key)
    if entry is None:
        raise ask.not_found()
    budgets = ask.hub.catalog.get_storage("policy", "poddisruptionbudgets")
    page = await ask.hub.store.range(budgets.prefix(ask.info.namespace))
    for held in page.items:
        budget = forms.decode_stored(held, budgets.form)
        selector = label_selector_of(find_at(budget, "spec", "selector"))
        if not selector.matches(forms.labels_in(entry)):
            continue
        if (find_at(budget, "status", "disruptionsAllowed") or 0) <= 0:
            raise statuses.too_many_requests()


async def bind_pod(ask: ResourceRequest) -> Response:
    """Answer POST on `pods/binding`: put a pod on a node."""
    options = read_write_options(
        ask.info.query, kind="CreateOptions", user_agent=ask.context.header("user-agent")
    )
    body = _object(await ask.read_small_body("Binding"))
    require_name(ask, body)
    node = find_at(body, "target", "name")
    if not isinstance(node, str) or not node:
        raise BadRequest("a binding names the node in target.name")

    def bound(pod: Object) -> Object:
        held = find_at(pod, "spec", "nodeName")
        if held:
            why = f"pod {ask.info.name} is already assigned to node {statuses.quoted(held)}"
            raise statuses.conflict(GroupResource("", "pods/binding"), ask.info.name, why)
        return with_value(pod, node, "spec", "nodeName")

    await change(ask, bound, options)
    return value_response(ask.context, 201, {**_SUCCESS, "code": 201})


def _object(body: Body) -> Object:
    value = body.value
    if not isinstance(value, dict):
        raise BadRequest("the body must be an object")
    return {"metadata": {}, **cast("Object", value)}


PARTS: Final[Mapping[tuple[str, str], Verb]] = {
    ("/namespaces/finalize", "update"): finalize_namespace,
    ("/pods/eviction", "create"): evict_pod,
    ("/pods/binding", "create"): bind_pod,
}
"""Verbs by `group/resource/part` and verb."""
