"""Through which servers Pull clusters are reached: how they are found, and what forbids it.

A server that agents are to keep a tunnel to says so with a Lease in `kube-public`: which one it is,
and where, unless it is the hub itself, which agents know. A Lease that is no longer renewed is of a
server that has gone.

    Lease kube-public/clusterspace-tunnel-3f9a…
      labels       clusterspace.io/tunnels: "true"
      annotations  clusterspace.io/server: https://fleet.example.com:7443
                   clusterspace.io/certificate-authority: base64 of PEM
      spec         holderIdentity: 3f9a…   renewTime: …   leaseDurationSeconds: 40
"""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import Final

from clusterspace.kube.objects import Object, annotations_of, find_at, name_of
from clusterspace.kube.times import format_micro_time

SUBRESOURCE: Final = "tunnel"
"""`create` on `clusters/tunnel`: the right to be what a cluster is reached through."""

VIEW_ANNOTATION: Final = "clusterspace.io/view"
"""Annotation of a Cluster. `forbidden`: nobody reaches it through its agent, whatever that says."""
FORBIDDEN: Final = "forbidden"

GATEWAY_USER: Final = "clusterspace:gateway"
"""Who asks a member when a request names nobody: somebody without any rights of their own."""

LEASE_NAMESPACE: Final = "kube-public"
LEASE_PREFIX: Final = "clusterspace-tunnel-"
LABEL: Final = "clusterspace.io/tunnels"
LEASE_SECONDS: Final = 40
_SERVER: Final = "clusterspace.io/server"
_AUTHORITY: Final = "clusterspace.io/certificate-authority"


@dataclass(frozen=True, slots=True)
class TunnelServer:
    """A server that agents keep a tunnel to."""

    identity: str
    url: str = ""
    """Where it is; empty for a hub, at whatever address an agent knows it by."""
    authority: bytes = b""
    """Who vouches for it, in PEM; the hub's own authority when there is none."""

    @property
    def lease_name(self) -> str:
        """The name of its Lease."""
        return LEASE_PREFIX + self.identity


def is_view_forbidden(cluster: Object) -> bool:
    """Whether the operator of the hub has nobody reach a cluster through its agent."""
    return annotations_of(cluster).get(VIEW_ANNOTATION) == FORBIDDEN


def lease_of(server: TunnelServer, now: float) -> Object:
    """Return the Lease by which a server says that it is there."""
    notes = {_SERVER: server.url, _AUTHORITY: b64encode(server.authority).decode()}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": server.lease_name,
            "namespace": LEASE_NAMESPACE,
            "labels": {LABEL: "true"},
            "annotations": {key: value for key, value in notes.items() if value},
        },
        "spec": {
            "holderIdentity": server.identity,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format_micro_time(now),
        },
    }


def read_server(lease: Object) -> TunnelServer | None:
    """Return the server a Lease is of; None when it is none of ours, or cannot be read."""
    identity = find_at(lease, "spec", "holderIdentity")
    if not isinstance(identity, str) or name_of(lease) != LEASE_PREFIX + identity:
        return None
    notes = annotations_of(lease)
    if not notes.get(_SERVER, "https://").startswith("https://"):
        return None
    try:
        authority = b64decode(notes.get(_AUTHORITY, ""), validate=True)
    except (NotBase64, ValueError):
        return None
    return TunnelServer(identity, notes.get(_SERVER, ""), authority)
