"""Nodes for a real kube-apiserver: the simulation schedules and runs its pods, and is its kubelets.

A simulated member is an API server with made-up nodes. Here the API server is Kubernetes' own, and
only the nodes are made up: what reaches into containers goes the whole way, from kube-apiserver to
a kubelet that speaks what kubelets speak.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.chain import handler_of
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.listener import HttpServer
from clusterspace.apiserver.http.messages import Request, Response
from clusterspace.apiserver.http.request_info import RequestInfo, read_request
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.watch import EventType, WatchOptions, watch
from clusterspace.errors import ApiError, NotFound
from clusterspace.kube.objects import Object, name_of, namespace_of, uid_of, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.sim.api import NODE, POD, Key, Kind, Listener, Mirror, kind_of
from clusterspace.sim.containers import Containers, Programs
from clusterspace.sim.lifecycle import Lifecycle
from clusterspace.sim.nodes import Heartbeats, NodeShape
from clusterspace.sim.pod_subresources import PodSubresources
from clusterspace.sim.pods import Pace
from clusterspace.sim.scheduling import PodsByNode
from clusterspace.testing.certificates import loopback_tls

_STREAMS = {"input": "stdin", "output": "stdout", "error": "stderr"}
"""What kubelets call that which the API calls otherwise."""


def _path_of(kube_object: Object, *, is_new: bool = False) -> str:
    kind = kind_of(kube_object)
    group, version = kind.group_version.group, kind.group_version.version
    place = ResourcePath(
        GroupVersionResource(group, version, kind.plural),
        namespace_of(kube_object),
        "" if is_new else name_of(kube_object),
    )
    return place.path


class RemoteApi:
    """A SimApi at the other end of a network."""

    def __init__(self, client: ClusterClient, mirror: Mirror, kubelet_port: int) -> None:
        self._client = client
        self._mirror = mirror
        self._kubelet_port = kubelet_port

    async def create(self, kube_object: Object) -> Object:
        return await self._write("POST", _path_of(kube_object, is_new=True), kube_object)

    async def update(self, kube_object: Object) -> Object:
        return await self._write("PUT", _path_of(kube_object), kube_object)

    async def update_status(self, kube_object: Object) -> Object:
        if kube_object["kind"] == NODE.name:  # where kube-apiserver finds the kubelet
            here = [{"type": "InternalIP", "address": "127.0.0.1"}]
            endpoint = {"kubeletEndpoint": {"Port": self._kubelet_port}}
            kube_object = with_value(kube_object, here, "status", "addresses")
            kube_object = with_value(kube_object, endpoint, "status", "daemonEndpoints")
        return await self._write("PUT", f"{_path_of(kube_object)}/status", kube_object)

    async def delete(self, kube_object: Object, *, grace_seconds: int | None = None) -> None:
        options: Object = {"preconditions": {"uid": uid_of(kube_object)}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._send("DELETE", _path_of(kube_object), options)
        except NotFound:
            return

    async def bind(self, pod: Object, node: str) -> None:
        binding: Object = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._send("POST", f"{_path_of(pod)}/binding", binding)

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> None:
        """Tell of everything there is, and of what comes for as long as the server remembers it."""
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(self._follow(kind, listener))

    async def _follow(self, kind: Kind, listener: Listener) -> None:
        group, version = kind.group_version.group, kind.group_version.version
        place = ResourcePath(GroupVersionResource(group, version, kind.plural))
        listed: Any = msgspec.json.decode(
            (await self._client.connection.ask(ApiRequest("GET", place.path))).body
        )
        own = {"kind": kind.name, "apiVersion": kind.api_version}
        listener.replace(kind, [{**own, **each} for each in listed["items"]])
        since = str(listed["metadata"]["resourceVersion"])
        while True:
            options = WatchOptions(resource_version=since)
            async for events in watch(self._client.connection, place, options):
                for event in events:
                    since = event.item.version.resource_version
                    if event.type is EventType.BOOKMARK:
                        continue
                    shown: Object = event.item.decode()
                    if event.type is EventType.DELETED:
                        listener.removed(shown)
                    else:
                        self._note(shown, listener)

    def _note(self, shown: Object, listener: Listener) -> None:
        """Tell of an object, unless a write of ours has told of a newer state of it."""
        known = self._mirror.find(Key(str(shown["kind"]), namespace_of(shown), name_of(shown)))
        if known is None or _revision(known) < _revision(shown):
            listener.changed(shown)

    async def _write(self, method: str, path: str, body: Object) -> Object:
        stored = await self._send(method, path, body)
        if stored["kind"] in (NODE.name, POD.name):
            self._note(stored, self._mirror)  # before the write returns: nobody acts on it twice
        return stored

    async def _send(self, method: str, path: str, body: Object) -> Object:
        json = (("Content-Type", "application/json"),)
        request = ApiRequest(method, path, headers=json, body=msgspec.json.encode(body))
        answer = await self._client.connection.ask(request)
        return msgspec.json.decode(answer.body)


def _revision(kube_object: Object) -> int:
    return int(kube_object["metadata"]["resourceVersion"])


class Kubelet:
    """What kube-apiserver asks of the nodes: logs, commands, terminals and ports of pods."""

    def __init__(self, mirror: Mirror, inside: PodSubresources) -> None:
        self._mirror = mirror
        self._inside = inside

    async def answer(self, context: RequestContext) -> Response | None:
        context.request.trust_connection()
        try:
            info = context.info
            pod = self._mirror.find(Key(POD.name, info.namespace, info.name))
            if pod is None:
                raise NotFound(f"pod {info.name} does not exist")
            if info.subresource == "log":
                return await self._inside.log(context, pod)
            connect: dict[str, Any] = {
                "exec": self._inside.execute,
                "attach": self._inside.attach,
                "portforward": self._inside.port_forward,
            }
            await connect[info.subresource](context, pod)
        except ApiError as error:  # said as plain text, as kubelets do
            return Response(error.code, (("Content-Type", "text/plain"),), error.message.encode())
        return None


def read_kubelet_request(request: Request) -> RequestInfo:
    """Read what a kubelet is asked for as what a pod is asked for.

    /containerLogs/NS/POD/CONTAINER, /exec/NS/POD/CONTAINER, /attach/…, /portForward/NS/POD
    """
    what, namespace, pod, *container = request.path.strip("/").split("/")
    subresource = {"containerLogs": "log", "portForward": "portforward"}.get(what, what)
    pairs = [
        (_STREAMS.get(key, key), "true" if key in (*_STREAMS, "tty") and value == "1" else value)
        for key, value in parse_qsl(request.query)
    ]
    pairs += [("container", container[-1])] if container else []
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/{subresource}"
    method = "GET" if subresource == "log" else "POST"
    return read_request(method, path, urlencode(pairs))


@asynccontextmanager
async def simulated_nodes(client: ClusterClient, cluster: str, count: int) -> AsyncGenerator[None]:
    """Have so many nodes, and whoever runs pods on them, for as long as the block lasts."""
    clock, mirror = SystemClock(), Mirror()
    containers = Containers(clock)
    programs, pods_by_node = Programs(containers, clock), PodsByNode(mirror)
    kubelet = Kubelet(mirror, PodSubresources(containers, programs, mirror, clock))
    server = HttpServer(
        handler_of(kubelet.answer, read_kubelet_request), tls=loopback_tls().context
    )
    await server.listen("127.0.0.1", 0)
    api = RemoteApi(client, mirror, server.addresses[0][1])
    lifecycle = Lifecycle(api, api, mirror, pods_by_node, programs, clock, Pace())
    lifecycle.on_removal(containers.forget)
    nodes = Heartbeats(api, mirror, clock, cluster, count, NodeShape(pods=250))
    work = (
        api.follow((NODE, POD), mirror),
        lifecycle.run(),
        programs.run(),
        nodes.run(),
    )
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await server.drain(0.0)
    for task in tasks:
        if not task.cancelled() and (failed := task.exception()) is not None:
            raise failed
