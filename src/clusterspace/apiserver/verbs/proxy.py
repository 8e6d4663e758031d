"""`clusters/NAME/proxy/PATH`: a member's own API, through the hub, with the caller's rights there.

The right to `clusters/proxy` says who may reach a member at all; what they may do there is for the
member to decide. Who may `get` it may look; a shell or a proxy behind it takes `create`.

`clusters/NAME/tunnel` is where the agent of a Pull member connects, through which it is reached.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from clusterspace.apis.clusters import (
    CLUSTERS,
    SecretRef,
    impersonator_ref_of,
    is_pull,
    secret_ref_of,
)
from clusterspace.apis.identities import CONTROLLERS_ON_MEMBERS, CONTROLLERS_USER
from clusterspace.apis.tunnels import SUBRESOURCE as TUNNEL
from clusterspace.apiserver import forms
from clusterspace.apiserver.http.agent_tunnels import AgentTunnels
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.apiserver.http.relays import Passage, relay, tunnel
from clusterspace.apiserver.http.request_info import RequestInfo, reach_verb, read_request
from clusterspace.apiserver.http.users import MemberIdentities
from clusterspace.apiserver.verbs.resource_request import ResourceRequest, Verb
from clusterspace.client.connection import Connections
from clusterspace.client.requests import AnswerMemory
from clusterspace.client.settings import ConnectionSettings, Impersonation
from clusterspace.errors import BadRequest, ClusterError
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object

UserSettings: TypeAlias = Callable[[Object, Object | None, Object | None], ConnectionSettings]
"""A Cluster, its Secret and its impersonator's Secret to how users reach it; ClusterError if not"""

_SUBRESOURCE: Final = f"{CLUSTERS.group}/{CLUSTERS.resource}/proxy"
_TUNNEL: Final = f"{CLUSTERS.group}/{CLUSTERS.resource}/{TUNNEL}"
_VERBS: Final = ("get", "create", "update", "patch", "delete", "options")
_ANSWERS_BYTES: Final = 128 * 1024 * 1024
"""For all answers of members that are read before they are passed on: refusals and Tables."""
_OWN_SEGMENTS: Final = 7
"""/apis/GROUP/VERSION/clusters/NAME/proxy, and the nothing before the first slash."""


class ClusterProxy:
    """Passes calls on to members; keeps one set of connections for each."""

    def __init__(
        self,
        connections: Connections,
        user_settings: UserSettings,
        identities: MemberIdentities,
        tunnels: AgentTunnels,
    ) -> None:
        self._tunnels = tunnels
        self._connections = connections
        self._user_settings = user_settings
        self._identities = identities
        self._memory = AnswerMemory(_ANSWERS_BYTES)

    def verbs(self) -> Mapping[tuple[str, str], Verb]:
        """Return the verbs for the route table: all of the proxy's do the same."""
        passing = {(_SUBRESOURCE, verb): self.pass_on for verb in _VERBS}
        return {**passing, (_TUNNEL, "create"): self.accept_tunnel}

    async def accept_tunnel(self, request: ResourceRequest) -> Response | None:
        """Carry the tunnel of a Pull member for its agent."""
        name = request.info.name
        settings = await self._settings(request)
        if not settings.is_tunnelled:
            raise BadRequest(f"cluster {name!r} is reached by its address, and has no tunnel")
        await self._tunnels.accept(request.context, name)
        return None

    async def _settings(self, request: ResourceRequest) -> ConnectionSettings:
        """Return how users reach the member; a tunnel that it may not have any more is closed."""
        name = request.info.name
        entry = await request.hub.store.get(request.key)
        if entry is None:
            self._tunnels.forget(name)
            await self._connections.forget(name)
            raise request.not_found()
        cluster = forms.decode_stored(entry, request.served.form)
        secret = await _find_secret(request, secret_ref_of(cluster))
        impersonator = await _find_secret(request, impersonator_ref_of(cluster))
        try:
            return self._user_settings(cluster, secret, impersonator)
        except ClusterError:
            if is_pull(cluster):
                self._tunnels.forget(name)
            raise

    async def pass_on(self, request: ResourceRequest) -> Response | None:
        """Answer what the member answers."""
        if request.info.name == "*":
            raise statuses.method_not_served(
                "the hub passes requests on to one cluster; ask the fleet API server for all"
            )
        context = request.context
        connection = await self._connections.get(await self._settings(request))
        # Names that begin with `system:` stay here, but for one, who reads what pods use where only
        # an agent can be asked: by a name of its own, which means nobody else anywhere.
        if context.user.name == CONTROLLERS_USER and request.info.verb == "get":
            identity = Impersonation(CONTROLLERS_ON_MEMBERS).headers()
        else:
            identity = self._identities.headers(context.user, request.info.name)
        hold = self._memory.open_hold(context.user.name)
        context.request.after_answer(hold.close)
        passage = Passage(connection, target_of(context), identity, hold=hold)
        # As it was read when it was authorized: there is no second reading to differ from it.
        inner = context.info.proxied
        if context.request.is_upgrade and inner is not None:
            return await tunnel(context, passage, inner)
        return await relay(context, passage)


async def _find_secret(request: ResourceRequest, ref: SecretRef | None) -> Object | None:
    if ref is None:
        return None
    served = request.hub.catalog.get_storage("", "secrets")
    entry = await request.hub.store.get(served.key(ref.namespace, ref.name))
    return None if entry is None else forms.decode_stored(entry, served.form)


def read_hub_info(request: Request) -> RequestInfo:
    """Read a request to the hub; one for a member's API is read as that member will, too.

    The verb of such a request is the right on `clusters/proxy` that it takes.
    """
    info = read_request(request.method, request.path, request.query)
    path = f"{info.group}/{info.resource}/{info.subresource}"
    if path == _TUNNEL and info.verb == "get":
        # A WebSocket begins with GET; to be what a cluster is reached through is no read.
        return replace(info, verb="create")
    is_proxied = path == _SUBRESOURCE
    if not is_proxied or info.is_watch_path:
        return info
    inner = read_request(info.method, "/" + "/".join(info.rest), request.query)
    verb = reach_verb(info.method, inner, is_upgrade=request.is_upgrade)
    return replace(info, verb=verb, proxied=inner)


def target_of(context: RequestContext) -> str:
    """Return the part of the URL that is the member's, as it was written."""
    path = "/" + "/".join(context.request.path.split("/")[_OWN_SEGMENTS:])
    return f"{path}?{context.request.query}" if context.request.query else path
