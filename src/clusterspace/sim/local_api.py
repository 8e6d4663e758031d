"""The API of a simulated member for its own controllers: the same verbs, without the network.

A call goes to the route table as an HTTP request would, so it is read, defaulted, validated,
recorded in managedFields and checked against resourceVersions like everybody's. Only TLS, HTTP and
the copy of every object at the far end of a watch are left out. That is also what makes the
listener's view exact: the store lets it know of a write before the write returns.
"""

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Final

import msgspec

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import RequestContext, RequestHandler
from clusterspace.apiserver.http.messages import (
    HeaderPairs,
    Headers,
    Hijacked,
    IncomingBody,
    Request,
    RequestHead,
    Stream,
)
from clusterspace.apiserver.http.request_info import read_request
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import Event
from clusterspace.errors import NotFound, StoreError
from clusterspace.kube.objects import Object, name_of, namespace_of, uid_of
from clusterspace.sim.api import Kind, Listener, kind_of

_decoder: Final = msgspec.json.Decoder()


class LocalApi:
    """A SimApi in the same process."""

    def __init__(self, hub: HubState, answer: RequestHandler, manager: str) -> None:
        self._hub = hub
        self._answer = answer
        self._agent = f"{manager}/simulated"
        """What becomes the field manager, as with any client that names none."""
        self._user = User(f"system:{manager}", (MASTERS,))

    async def create(self, kube_object: Object) -> Object:
        """Create an object."""
        kind = kind_of(kube_object)
        return await self._send("POST", _path(kind, namespace_of(kube_object)), kube_object)

    async def update(self, kube_object: Object) -> Object:
        """Replace an object."""
        return await self._send("PUT", _path_of(kube_object), kube_object)

    async def update_status(self, kube_object: Object) -> Object:
        """Replace a status."""
        return await self._send("PUT", f"{_path_of(kube_object)}/status", kube_object)

    async def delete(self, kube_object: Object, *, grace_seconds: int | None = None) -> None:
        """Delete exactly this object."""
        options: Object = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid_of(kube_object)},
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            await self._send("DELETE", _path_of(kube_object), options)
        except NotFound:
            return

    async def bind(self, pod: Object, node: str) -> None:
        """Put a pod on a node."""
        binding: Object = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": name_of(pod), "namespace": namespace_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._send("POST", f"{_path_of(pod)}/binding", binding)

    async def follow(self, kinds: Iterable[Kind], listener: Listener) -> None:
        """Tell the listener of everything, from the store's own events; raise when they end."""
        store = self._hub.store
        ended: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        with ExitStack() as stack:
            for kind in kinds:
                served = self._hub.catalog.get_storage(kind.group_version.group, kind.plural)
                page = await store.range(served.prefix())
                # The subscription begins after the revision of the list, so that what is written
                # between the two is an event of it: nothing is missed, nothing comes twice.
                listed = (forms.decode_stored(each, served.form) for each in page.items)
                listener.replace(kind, listed)
                sink = _Sink(served, listener, ended)
                subscription = store.subscribe(served.prefix(), after=page.revision, sink=sink)
                stack.callback(subscription.close)
            raise await ended

    async def _send(self, method: str, path: str, body: Object) -> Object:
        """Answer a request as if it had come over the network; refusals are ApiErrors."""
        content = msgspec.json.encode(body)
        head = RequestHead(
            method=method,
            target=path.encode(),
            version="1.1",
            headers=Headers([("content-type", "application/json"), ("user-agent", self._agent)]),
            content_length=len(content),
            expects_continue=False,
            is_upgrade=False,
            keeps_alive=False,
        )
        incoming = IncomingBody(is_complete=False)
        incoming.add([content], is_complete=True)
        request = Request(head, incoming, _NoConnection())
        context = RequestContext(request, read_request(method, path, ""), request_id="")
        context.user = self._user
        response = await self._answer(context)
        if response is None:
            raise AssertionError(f"{method} {path} was answered with a stream")
        answered = response.body
        return _decoder.decode(answered if isinstance(answered, bytes) else b"".join(answered))


class _Sink:
    """Hands the store's events on as objects."""

    def __init__(
        self, served: Served, listener: Listener, ended: "asyncio.Future[StoreError]"
    ) -> None:
        self._served = served
        self._listener = listener
        self._ended = ended

    def receive(self, events: tuple[Event, ...]) -> None:
        """Hand on what changed."""
        form = self._served.form
        for event in events:
            if not event.is_delete:
                self._listener.changed(forms.decode_stored(event.item, form))
            elif event.previous is not None:
                self._listener.removed(forms.decode_stored(event.previous, form))

    def end(self, reason: StoreError) -> None:
        """Let the follower start over."""
        if not self._ended.done():
            self._ended.set_result(reason)


def _path(kind: Kind, namespace: str) -> str:
    base = kind.group_version.path
    return f"{base}/namespaces/{namespace}/{kind.plural}" if namespace else f"{base}/{kind.plural}"


def _path_of(kube_object: Object) -> str:
    kind = kind_of(kube_object)
    return f"{_path(kind, namespace_of(kube_object))}/{name_of(kube_object)}"


class _NoConnection:
    """An Exchange without a peer: nothing to stream to, nobody to lose."""

    peer_address = ""
    peer_certificate = None
    is_connected = True

    @property
    def memory(self) -> dict[str, Any]:
        """Return a place to remember things in: a new one, as every call stands alone."""
        return {}

    async def wait_disconnected(self) -> None:
        """Wait for ever: there is nobody who could leave."""
        await asyncio.get_running_loop().create_future()

    def trust(self) -> None:
        """There is no stranger here to be told from."""

    def cancel(self) -> None:
        """There is nothing to cut."""

    async def next_slice(self, owner: str) -> None:
        """Let others have a turn."""
        await asyncio.sleep(0)

    def want_body(self) -> None:
        """Nothing is on its way: the body is here."""

    def start_stream(self, status: int, headers: HeaderPairs) -> Stream:
        """Refuse: a controller of the simulation asks for no streams."""
        raise AssertionError(f"a local call was answered with a stream ({status}, {headers})")

    def hijack(self, *, is_patient: bool = True) -> Hijacked:
        """Refuse: there is no connection to take over."""
        raise AssertionError("a local call has no connection to take over")
