"""The scope of a request is the scope of its resource, or there is no such path."""

from collections.abc import Awaitable

from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.middleware.authorize import Authorizer, refusal
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.kube import statuses
from clusterspace.kube.resources import GroupVersion


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
        """Say that there is no such path to who may read what is served; to others, nothing."""
        info = context.info
        served = RequestInfo("GET", GroupVersion(info.group, info.version).path, "get")
        if (await self._authorizer.decide(context.user, served)).allowed:
            raise statuses.unknown_path()
        raise refusal(context.user, info)
