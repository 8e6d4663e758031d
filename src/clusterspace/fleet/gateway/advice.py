"""What will become of a write, said in a Warning at the write when it is not what it looks like.

A copy on a member is put back to what its template says, a minute after kubectl has said "scaled".
A pod on the hub waits for a policy, where `kubectl run` would have somebody wait for the pod.
"""

from typing import Final

import msgspec

from clusterspace.apis.stamps import MANAGED, RETAIN_REPLICAS
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.fleet.gateway.routes import HUB, qualify
from clusterspace.kube.json_errors import UNREADABLE

_CHANGES: Final = frozenset({"update", "patch"})


class _Metadata(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None


class _Headed(msgspec.Struct):
    metadata: _Metadata | None = None


_read_headed: Final = msgspec.json.Decoder(_Headed).decode


def must_look(info: RequestInfo, cluster: str) -> bool:
    """Whether the answer to a write will not say whether it was about a copy.

    A Scale has no labels, and what is deleted is often answered with a Status.
    """
    is_scale = info.subresource == "scale" and info.verb in _CHANGES
    is_delete = info.verb == "delete" and not info.subresource
    return cluster != HUB and bool(info.name) and (is_scale or is_delete)


def advice_for(info: RequestInfo, cluster: str, answer: bytes, before: bytes = b"") -> str:
    """Return what to say of a write that a cluster has carried out; empty when there is nothing.

    `before` is the object as it was, for those of which `must_look` says so.
    """
    metadata = _metadata_in(before or answer)
    if cluster == HUB:
        is_pod = (info.group, info.resource, info.subresource) == ("", "pods", "")
        if not (is_pod and info.verb == "create" and metadata.name):
            return ""
        return (
            f"pod {metadata.name} is a template on the hub, where nothing runs: it stays Pending "
            "until a policy places it; to run it now, name a cluster: "
            f"{qualify(metadata.name, 'CLUSTER')}"
        )
    labels = metadata.labels or {}
    is_write = info.verb in _CHANGES and info.subresource in ("", "scale")
    is_retained = info.subresource == "scale" and labels.get(RETAIN_REPLICAS) == "true"
    if labels.get(MANAGED) != "true" or is_retained:
        return ""
    what = f"{info.resource}.{info.group}" if info.group else info.resource
    name = metadata.name or info.name
    copy = f"{what} {name} in cluster {cluster} is a copy that the hub keeps"
    if info.verb == "delete":
        return (
            f"{copy}, and will be made again; delete {name} on the hub instead, "
            f"or take {cluster} out of its policy"
        )
    if not is_write:
        return ""
    return (
        f"{copy}: what its template says will be put back; change {name} on the hub instead, "
        f"or write an OverridePolicy for {cluster}"
    )


def _metadata_in(body: bytes) -> _Metadata:
    try:
        return _read_headed(body).metadata or _Metadata()
    except UNREADABLE:
        return _Metadata()
