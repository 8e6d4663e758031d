"""The route table, readable top to bottom: a request to the verb that answers it."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Protocol

from clusterspace import __version__
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.discovery import Discovery
from clusterspace.apiserver.health import PATHS, Health
from clusterspace.apiserver.http.context import RequestContext, RequestHandler, headers_for
from clusterspace.apiserver.http.guards import Authorizer, refusal
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.request_info import (
    Protobuf,
    RequestInfo,
    negotiate,
    negotiate_stream,
)
from clusterspace.apiserver.http.responses import indented_response, text_response
from clusterspace.apiserver.openapi import OpenApi
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.verbs.read import get, list_objects
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, Verb
from clusterspace.apiserver.verbs.subresources import (
    CONNECTIONS,
    SUBRESOURCE_VERBS,
    admit_connection,
    get_scale,
    patch_scale,
    update_scale,
)
from clusterspace.apiserver.verbs.watch import watch
from clusterspace.apiserver.verbs.write import create, delete, delete_collection, patch, update
from clusterspace.apiserver.writing import fenced
from clusterspace.client.discovery import OWN_BUILD
from clusterspace.kube import statuses
from clusterspace.kube.protobuf.messages import find_kind
from clusterspace.kube.resources import GroupVersion
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
_ROOTS: Final = frozenset(PATHS) | {
    "/api",
    "/apis",
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/version",
}
_RUNS_PODS: Final = frozenset({"log", "exec", "attach", "portforward", "proxy"})


class RequireScope:
    """The step that refuses a path whose parts disagree, before anybody decides about them.

    The namespace in a path says whose roles count, its resource and name say which object is
    touched. Only where the resource has a namespace do the two belong together.
    """

    def __init__(self, catalog: Catalog, authorizer: Authorizer) -> None:
        self._catalog = catalog
        self._authorizer = authorizer

    def __call__(self, context: RequestContext, rest: RequestHandler) -> Awaitable[Response | None]:
        """Go on when the path is one its resource has."""
        info = context.info
        if not info.is_resource:
            return rest(context)
        served = self._catalog.find(info.group, info.version, info.resource)
        # What is not served is not found, but only by those who are authorized for it.
        if served is None or info.fits_scope(namespaced=served.info.namespaced):
            return rest(context)
        return self._refuse(context)

    async def _refuse(self, context: RequestContext) -> Response | None:
        """Say 404 to those who may read what is served, and to others no more than 403."""
        info = context.info
        served = RequestInfo("GET", GroupVersion(info.group, info.version).path, "get")
        if (await self._authorizer.decide(context.user, served)).allowed:
            raise statuses.unknown_path()
        raise refusal(context.user, info)


class Documents(Protocol):
    """Answers some paths that are no resources."""

    def answer(self, context: RequestContext) -> Response | None:
        """Return the answer; None for a path that is somebody else's."""
        ...


class HubApp:
    """Answers authorized requests."""

    def __init__(
        self,
        state: HubState,
        own_verbs: Mapping[tuple[str, str], Verb],
        own_documents: Sequence[Documents] = (),
    ) -> None:
        self._state = state
        self._own_documents = own_documents
        self._own_verbs = {**SUBRESOURCE_VERBS, **own_verbs}
        """Verbs with rules of their own, by `group/resource[/subresource]` and verb."""
        self._discovery = Discovery(state.catalog)
        self._openapi = OpenApi(state.catalog)
        self.health = Health(state.store)

    async def __call__(self, context: RequestContext) -> Response | None:
        """Answer a request; None when the verb wrote a stream of its own."""
        try:
            if context.info.is_resource:
                with fenced(context):
                    return await self._resource(context)
            return await self._other(context)
        finally:
            context.end_turn()

    # -- everything that is not about an object ------------------------------------------------

    async def _other(self, context: RequestContext) -> Response:
        path = context.info.path
        if context.info.method not in ("GET", "HEAD"):
            raise statuses.method_not_allowed()
        if (health := self.health.answer(context)) is not None:
            return health
        if path == "/version":
            return indented_response(context, 200, version_document())
        if path == "/metrics":
            return Response(200, headers_for(context, metrics.CONTENT_TYPE), metrics.render())
        if path == "/metrics/slis":
            headers = headers_for(context, metrics.CONTENT_TYPE)
            return Response(200, headers, metrics.render_health_checks())
        if path == "/":
            versions = {served.info.group_version.path for served in self._state.catalog.all()}
            groups = {f"/apis/{served.info.group}" for served in self._state.catalog.all()}
            return indented_response(
                context, 200, {"paths": sorted((_ROOTS | versions | groups) - {"/apis/"})}
            )
        if path == "/openapi/v2":
            return await self._openapi.answer_v2(context)
        for own in self._own_documents:
            if (answer := own.answer(context)) is not None:
                return answer
        documents = self._openapi if path.startswith("/openapi") else self._discovery
        return documents.answer(context) or text_response(context, 404, "404 page not found\n")

    # -- objects -------------------------------------------------------------------------------

    async def _resource(self, context: RequestContext) -> Response | None:
        info = context.info
        served = self._state.catalog.find(info.group, info.version, info.resource)
        if served is None:
            if self._discovery.serves(info.group, info.version):
                raise statuses.unknown_path()
            return text_response(context, 404, "404 page not found\n")
        # Named for the metrics by what is served only, never by what somebody made up.
        is_known = served.info.find_subresource(info.subresource) is not None
        context.labels = RequestLabels(
            info.verb,
            info.group,
            info.version,
            info.resource,
            info.subresource if is_known else "",
            "resource" if info.name else "namespace" if info.namespace else "cluster",
        )
        _require_method(info, served)
        if served.deprecation:
            context.warn(served.deprecation)
        # What is passed on is for the one that answers to negotiate.
        accept = "" if info.subresource == "proxy" else context.header("accept")
        protobuf = _protobuf_of(served, info.subresource)
        if info.verb == "watch":
            representation = negotiate_stream(accept, protobuf)
        else:
            # What cannot be read, such as a review or an eviction, has no columns.
            asked = (
                served.info.find_subresource(info.subresource) if info.subresource else served.info
            )
            is_read = asked is None or not {"get", "list"}.isdisjoint(asked.verbs)
            representation = negotiate(accept, protobuf, is_transformed=is_read)
        if needs_quorum(info):
            # Once, for all that this request reads: hubs that share a store may be behind it.
            await self._state.store.sync()
        request = ResourceRequest(self._state, context, served, representation)
        path = f"{info.group}/{info.resource}"
        if info.subresource:
            path = f"{path}/{info.subresource}"
        own = self._own_verbs.get((path, info.verb))
        if own is not None:
            if info.subresource in CONNECTIONS:
                await admit_connection(request)
            return await own(request)
        if not info.subresource:
            return await _allowed(_OBJECT_VERBS, info.verb, served.info.verbs)(request)
        subresource = served.info.find_subresource(info.subresource)
        if subresource is None:
            raise statuses.unknown_path()
        if info.subresource in _RUNS_PODS:
            raise statuses.method_not_served(
                "this hub runs no pods: "
                f"use {info.subresource} on the cluster that runs {info.name!r}"
            )
        verbs = _SCALE_VERBS if info.subresource == "scale" else _STATUS_VERBS
        return await _allowed(verbs, info.verb, subresource.verbs)(request)


def needs_quorum(info: RequestInfo) -> bool:
    """Whether a request is to see all that was acknowledged before it, at whichever hub.

    Not when it names a version: 0 is whatever there is, and any other is waited for. Nor when it
    creates: that its name is free the store says itself, and what admission does not find it looks
    for once more.
    """
    if info.verb == "create" and not info.subresource:
        return bool(info.query.get("dryRun"))
    return info.verb not in ("get", "list", "watch") or not info.query.get("resourceVersion")


def _allowed(verbs: Mapping[str, Verb], verb: str, served: tuple[str, ...]) -> Verb:
    found = verbs.get(verb)
    if found is None or verb not in served:
        raise statuses.method_not_allowed()
    return found


def _protobuf_of(served: Served, subresource: str) -> Protobuf:
    """Return how much of what a path answers can be answered in protobuf."""
    found = served.info.find_subresource(subresource) if subresource else None
    kind = served.info.group_version_kind if found is None else found.group_version_kind
    # The kind of a custom resource may be called like one of Kubernetes' own; its scale is one.
    is_foreign = served.is_custom and kind.group == served.info.group
    if is_foreign or find_kind(kind.api_version, kind.kind) is None:
        return Protobuf.METADATA
    return Protobuf.OBJECTS


def _require_method(info: RequestInfo, served: Served) -> None:
    """Refuse what cannot be asked of a collection, of all namespaces, or of an object.

    `RequireScope` has seen to it, before the request was authorized, that the path is one the
    resource has; requests of our own that nobody authorizes are held to it here.
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
    """Return the document of /version: the Kubernetes version we serve, and ours."""
    major, minor = KUBERNETES_VERSION
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{major}.{minor}.0{OWN_BUILD}{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }
