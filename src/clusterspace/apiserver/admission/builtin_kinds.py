"""Rules for Kubernetes' own kinds: Namespaces, Nodes, Services, Ingresses, claims and the like."""

import ipaddress
from typing import Final, cast

from clusterspace.apis.identities import COMPONENT_USER_PREFIX
from clusterspace.apiserver import forms
from clusterspace.apiserver.admission.pods import refused
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.http.users import MASTERS
from clusterspace.apiserver.identity.certificates.requests import (
    SIGNERS,
    UnreadableRequest,
    read_asked,
)
from clusterspace.apiserver.identity.following import find_object, list_objects
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.builtins.strategies import with_not_ready_taint, with_protection
from clusterspace.errors import Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    metadata_of,
    name_of,
    namespace_of,
    with_value,
)
from clusterspace.kube.quantities import Quantity, parse_quantity
from clusterspace.kube.resources import GroupKind, GroupResource

NAMESPACES: Final = GroupResource("", "namespaces")

SERVICE_RANGE: Final = ipaddress.ip_network("10.96.0.0/16")
"""The first part of kubeadm's default; real members use their own and never see these."""

_NODE_PORTS: Final = range(30000, 32768)
_HAVE_NODE_PORTS: Final = ("NodePort", "LoadBalancer")
_TRIES: Final = 64
_LOOKED_AT_ONCE: Final = 500
"""Services that are looked at in the event loop's own time: about 10 ms."""


class NamespaceLifecycle(Plugin):
    """Refuses new content in a namespace that is not there or is ending."""

    # Before anybody else is asked: no webhook hears of an object that has nowhere to be.
    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Let changes pass; look at the namespace of what is new."""
        new = admission.new
        if not admission.is_create or not admission.served.info.namespaced:
            return new
        namespace = namespace_of(new)
        served = hub.catalog.get_storage("", "namespaces")
        entry = await hub.store.get(served.key("", namespace))
        if entry is None:
            await hub.store.sync()  # another hub may have made it a moment ago
            entry = await hub.store.get(served.key("", namespace))
        if entry is None:
            raise statuses.not_found(NAMESPACES, namespace)
        if b"deletionTimestamp" not in entry.value:
            return new  # what the bytes do not have, the object has not: nearly always
        # What is let in now may reach the store after the namespace was marked: whoever ends
        # namespaces waits a moment after the mark, and looks until nothing is left.
        if find_at(forms.decode_stored(entry, served.form), "metadata", "deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {namespace} "
                "because it is being terminated"
            )
            cause = Cause(
                "NamespaceTerminating",
                f"namespace {namespace} is being terminated",
                "metadata.namespace",
            )
            resource = admission.served.info.group_resource
            raise statuses.forbidden(resource, name_of(new), why, (cause,))
        return new


class CertificateSubjects(Plugin):
    """Refuses requests to become an administrator, or a component of the control plane.

    An operator must not even see one.
    """

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Look at new certificate requests; let everything else pass."""
        new = admission.new
        if not admission.is_create or not admission.is_of(
            "certificates.k8s.io", "CertificateSigningRequest"
        ):
            return new
        signer = find_at(new, "spec", "signerName")
        if signer not in SIGNERS:
            return new
        try:
            asked = read_asked(new)
        except UnreadableRequest:
            return new  # nothing can be signed for it, and the signer says why
        why = ""
        if MASTERS in asked.organizations:
            why = f"use of {signer} signer with {MASTERS} group is not allowed"
        elif any(each.startswith(COMPONENT_USER_PREFIX) for each in asked.common_names):
            why = f"use of {signer} signer for users {COMPONENT_USER_PREFIX}* is not allowed"
        if why:
            raise statuses.forbidden(admission.served.info.group_resource, name_of(new), why)
        return new


class TaintNodesByCondition(Plugin):
    """Keeps pods off new nodes until a controller has seen that they are ready."""

    name = "TaintNodesByCondition"

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Taint a new node."""
        is_new_node = admission.is_create and admission.is_of("", "Node")
        return with_not_ready_taint(admission.new) if is_new_node else admission.new


class DefaultIngressClass(Plugin):
    """Gives new Ingresses that name no class the one that is marked as the default."""

    name = "DefaultIngressClass"

    def __init__(self, *, is_hub: bool = False) -> None:
        self._is_hub = is_hub

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Fill in the class, unless the Ingress has one, under its present name or the old one."""
        ingress = admission.new
        if (
            self._is_hub
            or not admission.is_create
            or not admission.is_of("networking.k8s.io", "Ingress")
        ):
            return ingress
        if find_at(ingress, "spec", "ingressClassName") is not None:
            return ingress
        if "kubernetes.io/ingress.class" in annotations_of(ingress):
            return ingress
        classes = await list_objects(hub, "networking.k8s.io", "ingressclasses")
        mark = "ingressclass.kubernetes.io/is-default-class"
        default = newest([each for each in classes if annotations_of(each).get(mark) == "true"])
        if default is None:
            return ingress
        return with_value(ingress, name_of(default), "spec", "ingressClassName")


class ServiceAddresses(Plugin):
    """Gives new Services an address, and those that need them node ports.

    The hub routes nothing, but clients read what a Service got, and templates that leave it out
    must look as they would on any cluster. Two Services that are made at the same moment may be
    given the same address: nothing is set aside, and nothing here depends on it.
    """

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Fill in what is missing; refuse an address somebody else has."""
        service, random = admission.new, hub.random
        if not admission.is_of("", "Service") or admission.subresource:
            return service
        kind = find_at(service, "spec", "type")
        if kind == "ExternalName":
            return service
        served = hub.catalog.get_storage("", "services")
        page = await hub.store.range(served.prefix())

        def addressed() -> Object:
            uid = find_at(service, "metadata", "uid")
            stored = (forms.decode_stored(entry, served.form) for entry in page.items)
            others = [each for each in stored if find_at(each, "metadata", "uid") != uid]
            given = find_at(service, "spec", "clusterIP")
            taken = {str(find_at(each, "spec", "clusterIP")) for each in others} - {"None"}
            if given and given in taken:
                why = f"failed to allocate IP {given}: provided IP is already allocated"
                cause = causes.invalid("spec.clusterIPs", [given], why)
                raise statuses.invalid(GroupKind("", "Service"), name_of(service), (cause,))
            chosen = service
            if not given:
                sizes = (
                    random.randrange(16, SERVICE_RANGE.num_addresses - 1) for _ in range(_TRIES)
                )
                addresses = (str(SERVICE_RANGE[each]) for each in sizes)
                address = next((each for each in addresses if each not in taken), None)
                if address is None:
                    raise statuses.internal("no free Service address was found")
                chosen = with_value(chosen, address, "spec", "clusterIP")
                chosen = with_value(chosen, [address], "spec", "clusterIPs")
                if not find_at(chosen, "spec", "ipFamilies"):
                    chosen = with_value(chosen, ["IPv4"], "spec", "ipFamilies")
            needs_ports = find_at(service, "spec", "allocateLoadBalancerNodePorts") is not False
            if kind not in _HAVE_NODE_PORTS or not needs_ports:
                return chosen
            used = {port.get("nodePort") for each in others for port in _ports(each)}
            ports: list[Object] = []
            for port in _ports(chosen):
                number = port.get("nodePort")
                if not number:
                    free = [each for each in random.sample(_NODE_PORTS, _TRIES) if each not in used]
                    if not free:
                        raise statuses.internal("no free node port was found")
                    number = free[0]
                used.add(number)
                ports.append({**port, "nodePort": number})
            return with_value(chosen, ports, "spec", "ports")

        if len(page.items) > _LOOKED_AT_ONCE:
            return await off_loop(admission.user.name, addressed)
        return await admission.run(addressed)


def _ports(service: Object) -> list[Object]:
    return cast("list[Object]", find_at(service, "spec", "ports") or [])


# -- claims and volumes: their class, their growth, their protection while in use ------------------

_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_ANNOTATIONS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def newest(classes: list[Object]) -> Object | None:
    """Return the default among several that say they are: the newest, by name when as old."""
    ordered = sorted(classes, key=name_of)
    return max(
        ordered, key=lambda each: str(metadata_of(each).get("creationTimestamp")), default=None
    )


class DefaultStorageClass(Plugin):
    """Gives new claims that name no class the one that is marked as the default."""

    name = "DefaultStorageClass"

    def __init__(self, *, is_hub: bool = False) -> None:
        self._is_hub = is_hub

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Fill in the class; a claim that names the empty one has chosen."""
        claim = admission.new
        if self._is_hub or not admission.is_create or not _is_claim(admission):
            return claim
        if _CLASS_ANNOTATION in annotations_of(claim):
            return claim
        if find_at(claim, "spec", "storageClassName") is not None:
            return claim
        classes = await list_objects(hub, "storage.k8s.io", "storageclasses")
        marks = [(each, annotations_of(each)) for each in classes]
        default = newest(
            [
                each
                for each, marked in marks
                if any(marked.get(mark) == "true" for mark in _DEFAULT_ANNOTATIONS)
            ]
        )
        if default is None:
            return claim
        return with_value(claim, name_of(default), "spec", "storageClassName")


class StorageObjectInUseProtection(Plugin):
    """Gives new volumes, claims and classes of volumes the finalizer that keeps them in use."""

    name = "StorageObjectInUseProtection"

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Add the finalizer; `apiserver.protection` takes it away."""
        if not admission.is_create or admission.subresource:
            return admission.new
        return with_protection(admission.served.info.group_kind, admission.new)


class PersistentVolumeClaimResize(Plugin):
    """Lets a claim grow only where its class says that its volumes can."""

    name = "PersistentVolumeClaimResize"

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Refuse to let a claim grow that is not bound, or whose class does not allow it."""
        new, old = admission.new, admission.old
        if old is None or not _is_claim(admission) or _size(new) <= _size(old):
            return
        if find_at(old, "status", "phase") != "Bound":
            raise refused(admission, "Only bound persistent volume claims can be expanded")
        name = _class_of(new)
        if name and name == _class_of(old):
            found = await find_object(hub, "storage.k8s.io", "storageclasses", "", name)
            if found is not None and found.get("allowVolumeExpansion"):
                return
        raise refused(
            admission,
            "only dynamically provisioned pvc can be resized and the storageclass that provisions "
            "the pvc must support resize",
        )


def _is_claim(admission: Admission) -> bool:
    return admission.is_of("", "PersistentVolumeClaim") and not admission.subresource


def _class_of(claim: Object) -> str:
    annotated = annotations_of(claim).get(_CLASS_ANNOTATION)
    return str(annotated or find_at(claim, "spec", "storageClassName") or "")


def _size(claim: Object) -> Quantity:
    text = cast("str | None", find_at(claim, "spec", "resources", "requests", "storage"))
    return parse_quantity(str(text or "0"))
