"""The route table, readable top to bottom: a call to the verb that answers it."""

from collections.abc import Mapping
from typing import Final

from clusterspace import __version__
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.discovery import Discovery
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.negotiation import negotiate
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.responses import headers_for, text_response, value_response
from clusterspace.apiserver.openapi import OpenApi
from clusterspace.apiserver.openapi_v2 import answer_openapi_v2
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.create import create
from clusterspace.apiserver.verbs.delete import delete, delete_collection
from clusterspace.apiserver.verbs.parts import PARTS, Verb
from clusterspace.apiserver.verbs.patch import patch
from clusterspace.apiserver.verbs.read import get, list_objects
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.apiserver.verbs.scale import get_scale, patch_scale, update_scale
from clusterspace.apiserver.verbs.update import update
from clusterspace.apiserver.verbs.watch import watch
from clusterspace.errors import ServiceUnavailable
from clusterspace.kube import statuses
from clusterspace.telemetry import metrics
from clusterspace.telemetry.metrics import RequestLabels

KUBERNETES_VERSION: Final = ("1", "35")

_OBJECT_VERBS: Final[Mapping[str, Verb]] = {
    "get": get,
    "list": list_objects,
    "watch": watch,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
_STATUS_VERBS: Final[Mapping[str, Verb]] = {"get": get, "update": update, "patch": patch}
_SCALE_VERBS: Final[Mapping[str, Verb]] = {
    "get": get_scale,
    "update": update_scale,
    "patch": patch_scale,
}
_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})
_RUNS_PODS: Final = frozenset({"log", "exec", "attach", "portforward", "proxy"})


class HubApp:
    """Answers authorized calls."""

    def __init__(self, state: HubState, own_verbs: Mapping[tuple[str, str], Verb]) -> None:
        self._state = state
        self._own_verbs = {**PARTS, **own_verbs}
        """Verbs with rules of their own, by `group/resource[/part]` and verb."""
        self._discovery = Discovery(state.catalog)
        self._openapi = OpenApi(state.catalog)
        self.is_ready = False
        """Whether /readyz says yes."""

    async def __call__(self, context: RequestContext) -> Response | None:
        """Answer a call."""
        try:
            return (
                await self._resource(context) if context.info.is_resource else self._other(context)
            )
        finally:
            context.end_turn()

    # -- everything that is not about an object ------------------------------------------------

    def _other(self, context: RequestContext) -> Response:
        path = context.info.path
        if context.info.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        if path in _HEALTH:
            return self._health(context, path.strip("/"))
        if path == "/version":
            return value_response(context, 200, version_document())
        if path == "/metrics":
            return Response(200, headers_for(context, metrics.CONTENT_TYPE), metrics.render())
        if path == "/":
            return value_response(context, 200, {"paths": self._paths()})
        if path == "/openapi/v2":
            return answer_openapi_v2(context)
        found = (
            self._openapi.answer(context)
            if path.startswith("/openapi")
            else self._discover(context)
        )
        return found or text_response(context, 404, "404 page not found\n")

    def _health(self, context: RequestContext, name: str) -> Response:
        checks = {"ping": True, "store": self._state.store.current_revision > 0}
        if name == "readyz":
            checks["serving"] = self.is_ready
        is_well = all(checks.values())
        if not is_well and name != "livez":
            failed = ", ".join(check for check, passed in checks.items() if not passed)
            raise ServiceUnavailable(f"the hub is starting or stopping ({failed})")
        if not context.info.query.get_all("verbose"):
            return text_response(context, 200, "ok")
        lines = [f"[{'+' if passed else '-'}]{check} ok\n" for check, passed in checks.items()]
        return text_response(context, 200, "".join([*lines, f"{name} check passed\n"]))

    def _discover(self, context: RequestContext) -> Response | None:
        match context.info.path.strip("/").split("/"):
            case ["api"]:
                return self._discovery.root_of_core(context)
            case ["apis"]:
                return self._discovery.root_of_groups(context)
            case ["apis", group]:
                return self._discovery.group(context, group)
            case ["api", version]:
                return self._discovery.version(context, "", version)
            case ["apis", group, version]:
                return self._discovery.version(context, group, version)
            case _:
                return None

    def _paths(self) -> list[str]:
        roots = {"/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3"}
        versions = {served.info.group_version.path for served in self._state.catalog.all()}
        groups = {f"/apis/{served.info.group}" for served in self._state.catalog.all()}
        return sorted((roots | versions | groups | {"/readyz", "/version"}) - {"/apis/"})

    # -- objects -------------------------------------------------------------------------------

    async def _resource(self, context: RequestContext) -> Response | None:
        info = context.info
        served = self._state.catalog.find(info.group, info.version, info.resource)
        if served is None:
            if self._discovery.serves(info.group, info.version):
                raise statuses.unknown_path()
            return text_response(context, 404, "404 page not found\n")
        context.labels = _labels(context, served)
        _require_method(info, served)
        # What is passed on is for the one that answers to negotiate.
        accept = "" if info.subresource == "proxy" else context.header("accept")
        representation = negotiate(accept)
        verb = self._verb(context, served)
        return await verb(ResourceRequest(self._state, context, served, representation))

    def _verb(self, context: RequestContext, served: Served) -> Verb:
        info = context.info
        if not info.subresource:
            own = self._own_verbs.get((f"{info.group}/{info.resource}", info.verb))
            return own or _allowed(_OBJECT_VERBS, info.verb, served.info.verbs)
        path = f"{info.group}/{info.resource}/{info.subresource}"
        own = self._own_verbs.get((path, info.verb))
        if own is not None:
            return own
        part = served.info.find_subresource(info.subresource)
        if part is None:
            raise statuses.unknown_path()
        if info.subresource in _RUNS_PODS:
            raise statuses.method_not_served(
                "this hub runs no pods: "
                f"use {info.subresource} on the cluster that runs {info.name!r}"
            )
        verbs = _SCALE_VERBS if info.subresource == "scale" else _STATUS_VERBS
        return _allowed(verbs, info.verb, part.verbs)


def _labels(context: RequestContext, served: Served) -> RequestLabels:
    """Name what a call is about for the metrics: only what is served, never what was made up."""
    info = context.info
    part = info.subresource if served.info.find_subresource(info.subresource) else ""
    scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
    return RequestLabels(info.verb, info.group, info.version, info.resource, part, scope)


def _allowed(verbs: Mapping[str, Verb], verb: str, served: tuple[str, ...]) -> Verb:
    found = verbs.get(verb)
    if found is None or verb not in served:
        raise statuses.method_not_allowed()
    return found


def _require_method(info: RequestInfo, served: Served) -> None:
    """Refuse what cannot be asked of a collection, of all namespaces, or of an object.

    That the path is one the resource has was seen to before the call was authorized; calls of
    our own that nobody authorizes are held to it here.
    """
    if not info.fits_scope(namespaced=served.info.namespaced):
        raise statuses.unknown_path()
    is_in_all = served.info.namespaced and not info.namespace
    if is_in_all and info.verb not in ("list", "watch"):
        raise statuses.method_not_allowed()
    is_about_collection = not info.name and info.verb in ("update", "patch")
    if is_about_collection or (info.name and info.verb == "create" and not info.subresource):
        raise statuses.method_not_allowed()


def version_document() -> dict[str, str]:
    """Return what `kubectl version` reads: the Kubernetes version we serve, and ours."""
    major, minor = KUBERNETES_VERSION
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0+clusterspace.{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }
