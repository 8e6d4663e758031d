"""Whether this API server is well: /healthz, /livez, /readyz, and the components beside it.

    ping       somebody answers
    log        logs are written
    etcd       the store; kube-apiserver's name for it, which probes and dashboards know
    store-writes     whether the store can be written to; a full disk leaves it readable
    poststarthook/…  what is started with the server, under kube-apiserver's names for it

`/readyz` besides says whether requests are wanted: not while the server starts or stops. A server
that can only be read is ready, and says that it is read-only: whoever took it out of a load
balancer would take the reads away too. `/readyz/store-writes` fails meanwhile, for alerts. One that
is cut off from its etcd is not: consistent reads fail there, and other hubs may reach it.
"""

from collections.abc import Iterable
from typing import Final

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import text_response
from clusterspace.apiserver.identity.following import find_object
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.store.interface import Store
from clusterspace.errors import ServiceUnavailable
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.times import parse_time
from clusterspace.telemetry import metrics

PATHS: Final = ("/healthz", "/livez", "/readyz")

_STARTED: Final = tuple(
    f"poststarthook/{name}"
    for name in (
        "start-apiserver-admission-initializer",
        "generic-apiserver-start-informers",
        "priority-and-fairness-config-consumer",
        "priority-and-fairness-filter",
        "storage-object-count-tracker-hook",
        "start-apiextensions-informers",
        "start-apiextensions-controllers",
        "crd-informer-synced",
        "start-system-namespaces-controller",
        "start-cluster-authentication-info-controller",
        "start-kube-apiserver-identity-lease-controller",
        "start-legacy-token-tracking-controller",
        "start-service-ip-repair-controllers",
        "rbac/bootstrap-roles",
        "scheduling/bootstrap-system-priority-classes",
        "priority-and-fairness-config-producer",
        "bootstrap-controller",
        "start-kubernetes-service-cidr-controller",
        "aggregator-reload-proxy-client-cert",
        "start-kube-aggregator-informers",
        "apiservice-status-local-available-controller",
        "apiservice-status-remote-available-controller",
        "apiservice-registration-controller",
        "apiservice-discovery-controller",
        "kube-apiserver-autoregistration",
        "apiservice-openapi-controller",
        "apiservice-openapiv3-controller",
        "storage-readiness",
    )
)
"""All of them begin with the server, and are over when it is first ready."""

_AGGREGATION: Final = "autoregister-completion"
_WRITES: Final = "store-writes"
_READ_ONLY: Final = "read-only: the disk of the store is full; reads are served, writes refused"
_CUT_OFF: Final = (
    "read-only: no quorum of etcd answers; watches and reads of resourceVersion=0 are served"
)


class Health:
    """The health checks of one server."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_ready = False
        self._is_started = False

    @property
    def is_ready(self) -> bool:
        """Whether /readyz says yes."""
        return self._is_ready

    @is_ready.setter
    def is_ready(self, ready: bool) -> None:
        self._is_ready = ready
        self._is_started = self._is_started or ready

    def become_ready(self) -> None:
        """Be ready from now on."""
        self.is_ready = True

    def answer(self, context: RequestContext) -> Response | None:
        """Answer a path at or below the health checks; None when it is neither."""
        path, query = context.info.path, context.info.query
        root = next((each for each in PATHS if path == each or path.startswith(f"{each}/")), None)
        if root is None:
            return None
        kind = root.removeprefix("/")
        checks = self._checks(kind)
        is_read_only = bool(self._store.refuses_writes)
        why = _READ_ONLY if self._store.is_reachable else _CUT_OFF
        if path != root:
            only = path.removeprefix(f"{root}/").rstrip("/")
            checks[_WRITES] = not is_read_only
            if only not in checks:
                return text_response(context, 404, "404 page not found\n")
            checks = {only: checks[only]}
        left_out = set(query.get_all("exclude"))
        checks = {name: passed for name, passed in checks.items() if name not in left_out}
        for name, passed in checks.items():
            metrics.health_checked(name, kind, passed=passed)
        failed = ", ".join(name for name, passed in checks.items() if not passed)
        # A server that starts or stops lives: to restart it would not help.
        if failed == _WRITES:
            raise ServiceUnavailable(why)
        if failed and kind != "livez" and not self._store.is_reachable:
            raise ServiceUnavailable(f"{why} ({failed})")
        if failed and kind != "livez":
            raise ServiceUnavailable(f"the hub is starting or stopping ({failed})")
        if not query.get_all("verbose"):
            return text_response(context, 200, f"ok\n{why}\n" if is_read_only else "ok")
        lines = [f"[{'+' if passed else '-'}]{name} ok\n" for name, passed in checks.items()]
        if is_read_only:
            lines.append(f"[-]{_WRITES} failed: {why}\n")
        return text_response(context, 200, "".join([*lines, f"{kind} check passed\n"]))

    def _checks(self, kind: str) -> dict[str, bool]:
        has_store = self._store.current_revision > 0
        checks = {"ping": True, "log": True, "etcd": has_store}
        if kind == "readyz":
            # A hub that its etcd does not answer is passed over: others may be better off.
            is_reachable = has_store and self._store.is_reachable
            checks |= {"etcd-readiness": is_reachable, "informer-sync": self._is_started}
        checks |= dict.fromkeys((*_STARTED, _AGGREGATION), self._is_started)
        if kind == "readyz":
            checks["shutdown"] = self._is_ready
        return checks


# -- componentstatuses ---------------------------------------------------------------------------

_SYSTEM: Final = "kube-system"
_BY_LEASE: Final = {
    "controller-manager": "kube-controller-manager",
    "scheduler": "kube-scheduler",
}


class Components:
    """The components of the control plane, as `kubectl get componentstatuses` shows them.

    A component is healthy while somebody holds its lease: whoever renews it does its work, on
    whichever machine. Those of which this process is one (`own`) are as healthy as it is.
    """

    def __init__(self, own: Iterable[str] = ()) -> None:
        self._own = frozenset(own)

    async def __call__(self, hub: HubState) -> Iterable[Object]:
        """Return every component as it is now."""
        troubles = {
            name: "" if name in self._own else await self._trouble(hub, lease)
            for name, lease in _BY_LEASE.items()
        }
        return [
            {
                "kind": "ComponentStatus",
                "apiVersion": "v1",
                "metadata": {"name": name},
                "conditions": [
                    {
                        "type": "Healthy",
                        "status": "False" if trouble else "True",
                        "message": trouble or "ok",
                    }
                ],
            }
            for name, trouble in {**troubles, "etcd-0": ""}.items()
        ]

    async def _trouble(self, hub: HubState, name: str) -> str:
        lease = await find_object(hub, "coordination.k8s.io", "leases", _SYSTEM, name)
        renewed = None if lease is None else find_at(lease, "spec", "renewTime")
        if lease is None or not renewed or not find_at(lease, "spec", "holderIdentity"):
            return f"nobody holds the lease {_SYSTEM}/{name}"
        seconds = float(find_at(lease, "spec", "leaseDurationSeconds") or 0)
        if parse_time(str(renewed)) + seconds < hub.clock.now():
            return f"the lease {_SYSTEM}/{name} was last renewed at {renewed}"
        return ""
