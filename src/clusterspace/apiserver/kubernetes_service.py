"""The API server as programs in a cluster know it: Service `kubernetes` in namespace `default`.

Nobody but the server itself knows where it is, so it writes the Service, and the Endpoints and the
EndpointSlice behind it, and puts them back when somebody deletes them. The range of which the
Service has the first address is the ServiceCIDR `kubernetes`.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final, cast

import structlog

from clusterspace.apiserver.admission.builtin_kinds import SERVICE_RANGE
from clusterspace.apiserver.identity.following import follow
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import create_own, edit_own, write_of
from clusterspace.errors import AlreadyExists
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, with_value

_log = structlog.get_logger(__name__)

NAME: Final = "kubernetes"
_NAMESPACE: Final = "default"
_MANAGER: Final = "kube-apiserver"
_PORT: Final = 443
_NETWORKING: Final = "networking.k8s.io"
_DISCOVERY: Final = "discovery.k8s.io"


class KubernetesService:
    """Keeps the Service, what is behind it, and its range there and right.

    `address` is where others reach this server, without brackets. It is empty when no other machine
    can: then nothing is behind the Service.
    """

    def __init__(self, hub: HubState, address: str, port: int) -> None:
        self._hub = hub
        self._address = address
        self._port = port

        catalog = hub.catalog
        self._looks: dict[str, Callable[[], Awaitable[None]]] = {
            catalog.get_storage(_NETWORKING, "servicecidrs").key("", NAME): self._keep_range,
            catalog.get_storage("", "services").key(_NAMESPACE, NAME): self._keep_service,
        }
        if address:
            endpoints = catalog.get_storage("", "endpoints").key(_NAMESPACE, NAME)
            slices = catalog.get_storage(_DISCOVERY, "endpointslices").key(_NAMESPACE, NAME)
            self._looks |= {endpoints: self._keep_endpoints, slices: self._keep_slice}

    async def publish(self) -> None:
        """Write what is missing or wrong."""
        for keep in self._looks.values():
            await keep()

    async def run(self) -> None:
        """Work until cancelled."""

        async def look(key: str) -> None:
            if key in self._looks:  # names that begin with this one are followed too
                await self._looks[key]()

        await self.publish()
        await follow(self._hub, tuple(self._looks), look)

    async def _keep_range(self) -> None:
        """Make the range; say that it is ready unless somebody has said otherwise."""

        def is_ready(existing: Object) -> Object:
            conditions = cast("list[Object]", find_at(existing, "status", "conditions") or [])
            if find_condition(conditions, "Ready") is not None:
                return existing
            ready = {
                "type": "Ready",
                "status": "True",
                "lastTransitionTime": self._hub.timestamp(),
                "reason": "",
                "message": "Kubernetes default Service CIDR is ready",
            }
            return with_value(existing, [*conditions, ready], "status", "conditions")

        new: Object = {
            "apiVersion": f"{_NETWORKING}/v1",
            "kind": "ServiceCIDR",
            "metadata": {"name": NAME},
            "spec": {"cidrs": [str(SERVICE_RANGE)]},
        }
        await self._keep(_NETWORKING, "servicecidrs", "", new, is_ready, subresource="status")

    async def _keep_service(self) -> None:
        """Make the Service; it leads to the port we have now."""
        ports = [
            {"name": "https", "protocol": "TCP", "port": _PORT, "targetPort": self._port},
        ]
        new: Object = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": NAME,
                "namespace": _NAMESPACE,
                "labels": {"component": "apiserver", "provider": NAME},
            },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": str(SERVICE_RANGE[1]),
                "ipFamilyPolicy": "SingleStack",
                "sessionAffinity": "None",
                "ports": ports,
            },
        }

        def corrected(existing: Object) -> Object:
            return with_value(existing, ports, "spec", "ports")

        await self._keep("", "services", _NAMESPACE, new, corrected)

    async def _keep_endpoints(self) -> None:
        ports = [{"name": "https", "port": self._port, "protocol": "TCP"}]
        subsets = [{"addresses": [{"ip": self._address}], "ports": ports}]
        new: Object = {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {
                "name": NAME,
                "namespace": _NAMESPACE,
                # The slice below is ours too: nobody need make another one from these.
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": subsets,
        }

        def corrected(existing: Object) -> Object:
            return {**existing, "subsets": subsets}

        await self._keep("", "endpoints", _NAMESPACE, new, corrected)

    async def _keep_slice(self) -> None:
        family = f"IPv{ipaddress.ip_address(self._address).version}"
        endpoints = [{"addresses": [self._address], "conditions": {"ready": True}}]
        ports = [{"name": "https", "port": self._port, "protocol": "TCP"}]
        new: Object = {
            "apiVersion": f"{_DISCOVERY}/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": NAME,
                "namespace": _NAMESPACE,
                "labels": {"kubernetes.io/service-name": NAME},
            },
            "addressType": family,
            "endpoints": endpoints,
            "ports": ports,
        }

        def corrected(existing: Object) -> Object:
            # The family of a slice never changes. One of the other family stays as it is, and is
            # wrong, until somebody deletes it: then it is made anew.
            if existing.get("addressType") != family:
                return existing
            return {**existing, "endpoints": endpoints, "ports": ports}

        await self._keep(_DISCOVERY, "endpointslices", _NAMESPACE, new, corrected)

    async def _keep(
        self,
        group: str,
        plural: str,
        namespace: str,
        new: Object,
        corrected: Callable[[Object], Object],
        *,
        subresource: str = "",
    ) -> None:
        """Make the object where it is missing, and correct it as it is now."""
        served = self._hub.catalog.get_storage(group, plural)
        key = served.key(namespace, NAME)
        if await self._hub.store.get(key) is None:
            try:
                await create_own(self._hub, served, new, _MANAGER)
            except AlreadyExists:
                pass  # somebody was quicker, and what they made is corrected like any other
            else:
                _log.info("made for the API server itself", key=key)
        write = write_of(self._hub, served, manager=_MANAGER, subresource=subresource)
        await edit_own(self._hub, served, key, corrected, write=write)
