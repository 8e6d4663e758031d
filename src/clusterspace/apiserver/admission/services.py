"""Addresses and node ports for Services.

The hub routes nothing, but clients read what a Service got, and templates that leave it out
must look as they would on any cluster.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.apiserver.store.interface import KeyValue
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import Object, find_at, name_of, with_value
from clusterspace.kube.resources import GroupKind

_RANGE: Final = ipaddress.ip_network("10.96.0.0/16")
"""The first part of kubeadm's default; real members use their own and never see these."""

_NODE_PORTS: Final = range(30000, 32768)
_HAVE_NODE_PORTS: Final = ("NodePort", "LoadBalancer")
_TRIES: Final = 64
_LOOKED_AT_ONCE: Final = 500
"""Services that are looked at in the event loop's own time: about 10 ms."""


class ServiceAddresses:
    """Gives new Services an address, and those that need them node ports."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Fill in what is missing; refuse an address somebody else has."""
        if not admission.is_of("", "Service") or admission.subresource:
            return admission.new
        service = admission.new
        kind = find_at(service, "spec", "type")
        if kind == "ExternalName":
            return service
        served = hub.catalog.get_storage("", "services")
        page = await hub.store.range(served.prefix())

        def addressed() -> Object:
            others = _other_services(served, page.items, service)
            with_address = _with_address(service, others, hub.random)
            return _with_node_ports(with_address, others, hub.random)

        if len(page.items) > _LOOKED_AT_ONCE:
            return await off_loop(admission.user.name, addressed)
        return await admission.run(addressed)


def _other_services(served: Served, entries: Sequence[KeyValue], service: Object) -> list[Object]:
    uid = find_at(service, "metadata", "uid")
    objects = (forms.decode_stored(entry, served.form) for entry in entries)
    return [each for each in objects if find_at(each, "metadata", "uid") != uid]


def _with_address(service: Object, others: list[Object], random: Random) -> Object:
    held = find_at(service, "spec", "clusterIP")
    taken = {str(find_at(each, "spec", "clusterIP")) for each in others} - {"None"}
    if held and held in taken:
        why = f"failed to allocate IP {held}: provided IP is already allocated"
        cause = causes.invalid("spec.clusterIPs", [held], why)
        raise statuses.invalid(GroupKind("", "Service"), name_of(service), (cause,))
    if held:
        return service
    address = _free_address(taken, random)
    chosen = with_value(service, address, "spec", "clusterIP")
    chosen = with_value(chosen, [address], "spec", "clusterIPs")
    families = find_at(chosen, "spec", "ipFamilies")
    return chosen if families else with_value(chosen, ["IPv4"], "spec", "ipFamilies")


def _free_address(taken: set[str], random: Random) -> str:
    for _ in range(_TRIES):
        address = str(_RANGE[random.randrange(16, _RANGE.num_addresses - 1)])
        if address not in taken:
            return address
    raise statuses.internal("no free Service address was found")


def _with_node_ports(service: Object, others: Iterable[Object], random: Random) -> Object:
    if find_at(service, "spec", "type") not in _HAVE_NODE_PORTS:
        return service
    if find_at(service, "spec", "allocateLoadBalancerNodePorts") is False:
        return service
    taken = {port.get("nodePort") for each in others for port in _ports(each)}
    ports: list[Object] = []
    for port in _ports(service):
        number = port.get("nodePort")
        if not number:
            free = [each for each in random.sample(_NODE_PORTS, _TRIES) if each not in taken]
            if not free:
                raise statuses.internal("no free node port was found")
            number = free[0]
        taken.add(number)
        ports.append({**port, "nodePort": number})
    return with_value(service, ports, "spec", "ports")


def _ports(service: Object) -> list[Object]:
    return cast("list[Object]", find_at(service, "spec", "ports") or [])
