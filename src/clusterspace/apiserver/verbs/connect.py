"""Connections into what runs (exec, attach, port-forward, proxies), as admission is asked of them.

Admission sees the options of a connection as an object: `PodExecOptions` and its like, filled from
the query. It is asked before anything is looked up, as for every other request.
"""

from collections.abc import Mapping
from typing import Final

from clusterspace.apiserver.http.request_info import Query
from clusterspace.apiserver.state import Admission, Operation
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.kube.objects import Object

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
