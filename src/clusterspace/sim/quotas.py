"""How much of its quota a namespace uses: the status of ResourceQuotas.

Nothing is refused here. What pods, claims and services take up is read from the mirror; of every
other kind only the number counts, and ObjectCounts keeps that without keeping the objects.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from clusterspace.builtins.resource_lists import effective, qos_class
from clusterspace.errors import MalformedQuantity
from clusterspace.kube.objects import Object, find_at, namespace_of
from clusterspace.kube.quantities import ZERO, Quantity, parse_quantity
from clusterspace.sim.api import CLAIM, POD, QUOTA, SERVICE, Change, Key, Mirror, key_of
from clusterspace.sim.plans import Plan
from clusterspace.sim.pods import is_ending, is_finished

_BATCH_SECONDS: Final = 0.1
_STORAGE_CLASS: Final = ".storageclass.storage.k8s.io/"
_COUNTED: Final = frozenset(
    {
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
    }
)
"""Kinds that are counted under their own name, besides under `count/`."""


class ObjectCounts:
    """How many objects of each resource each namespace has."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, str]]()
        self._watchers: list[Callable[[str], None]] = []

    def watch(self, watcher: Callable[[str], None]) -> None:
        """Call back with every namespace in which there is something more or less."""
        self._watchers.append(watcher)

    def clear(self) -> None:
        """Forget everything: it is counted anew."""
        self._counts.clear()

    def add(self, resource: str, namespace: str, number: int) -> None:
        """Count objects of a resource, which is written `plural.group`, in or out."""
        self._counts[resource, namespace] += number
        for watcher in self._watchers:
            watcher(namespace)

    def of(self, resource: str, namespace: str) -> int:
        """Return how many there are."""
        return self._counts[resource, namespace]


class QuotaController:
    """Keeps the status of every ResourceQuota."""

    name = "resource quotas"
    batch_seconds = _BATCH_SECONDS

    def __init__(self, mirror: Mirror, counts: ObjectCounts) -> None:
        self._mirror = mirror
        self._counts = counts

    def requests(self, change: Change) -> Iterable[Key]:
        """Return the quotas of a namespace in which something changed that they may count."""
        if change.kind == QUOTA.name and change.after is not None:
            yield key_of(change.after)
        elif change.kind in (POD.name, CLAIM.name, SERVICE.name):
            yield from self.quotas_of(namespace_of(change.latest))

    def quotas_of(self, namespace: str) -> Iterable[Key]:
        """Return the quotas of a namespace."""
        return map(key_of, self._mirror.in_namespace(QUOTA, namespace))

    def plan(self, key: Key, now: float) -> Plan:
        """Add up what a quota counts."""
        del now
        quota = self._mirror.find(key)
        if quota is None or is_ending(quota):
            return Plan()
        hard: dict[str, str] = find_at(quota, "spec", "hard") or {}
        pods = [
            pod
            for pod in self._mirror.in_namespace(POD, key.namespace)
            if not is_finished(pod) and _is_in_scope(pod, quota)
        ]
        used = {
            name: str(self._used(name, limit, key.namespace, pods)) for name, limit in hard.items()
        }
        status: Object = {"hard": hard, "used": used}
        present: Object = quota.get("status") or {}
        if all((present.get(field) or {}) == value for field, value in status.items()):
            return Plan()
        return Plan(status={**quota, "status": status})

    def _used(self, name: str, limit: str, namespace: str, pods: Sequence[Object]) -> Quantity:
        """Return the use of one resource, in the form in which its limit is written."""
        if name in ("pods", "count/pods"):
            return parse_quantity(str(len(pods)))
        if name.startswith("count/"):
            return parse_quantity(str(self._counts.of(name.removeprefix("count/"), namespace)))
        claims = self._mirror.in_namespace(CLAIM, namespace)
        if _STORAGE_CLASS in name:
            class_name, _, name = name.partition(_STORAGE_CLASS)
            claims = tuple(
                each for each in claims if find_at(each, "spec", "storageClassName") == class_name
            )
        if name == "persistentvolumeclaims":
            return parse_quantity(str(len(claims)))
        if name == "requests.storage":
            asked = (find_at(each, "spec", "resources", "requests", "storage") for each in claims)
            return _sum(limit, (str(each or "0") for each in asked))
        services = self._mirror.in_namespace(SERVICE, namespace)
        if name.startswith("services."):
            return parse_quantity(str(_special_services(name, services)))
        if name in _COUNTED:
            return parse_quantity(str(self._counts.of(name, namespace)))
        which, _, resource = name.rpartition(".") if "." in name else ("requests", "", name)
        if name.startswith(("requests.", "limits.")):
            which, _, resource = name.partition(".")
        amounts = (effective(pod["spec"], which).get(resource, "0") for pod in pods)
        overheads = (find_at(pod, "spec", "overhead", resource) or "0" for pod in pods)
        return _sum(limit, (*amounts, *overheads))


def _sum(limit: str, texts: Iterable[str]) -> Quantity:
    """Add quantities; the sum of nothing is a zero of the limit's form."""
    try:
        zero = parse_quantity(limit) - parse_quantity(limit)
    except MalformedQuantity:
        zero = ZERO
    for text in texts:
        try:
            zero = zero + parse_quantity(str(text))
        except MalformedQuantity:
            continue  # a custom or foreign value that is no quantity counts for nothing
    return zero


def _special_services(name: str, services: Iterable[Object]) -> int:
    total = 0
    for service in services:
        kind = find_at(service, "spec", "type")
        if name == "services.loadbalancers":
            total += kind == "LoadBalancer"
        elif name == "services.nodeports":
            ports: list[Object] = find_at(service, "spec", "ports") or []
            has_ports = kind == "NodePort" or (
                kind == "LoadBalancer"
                and find_at(service, "spec", "allocateLoadBalancerNodePorts") is not False
            )
            total += len(ports) if has_ports else sum(bool(each.get("nodePort")) for each in ports)
    return total


def _is_in_scope(pod: Object, quota: Object) -> bool:
    """Whether a quota counts a pod: every scope must hold."""
    scopes: list[str] = find_at(quota, "spec", "scopes") or []
    expressions: list[Object] = find_at(quota, "spec", "scopeSelector", "matchExpressions") or []
    asked = [{"scopeName": each, "operator": "Exists"} for each in scopes]
    return all(_holds(each, pod) for each in (*asked, *expressions))


def _holds(expression: Object, pod: Object) -> bool:
    is_terminating = (find_at(pod, "spec", "activeDeadlineSeconds") or -1) >= 0
    match expression.get("scopeName"):
        case "Terminating":
            return is_terminating
        case "NotTerminating":
            return not is_terminating
        case "BestEffort":
            return qos_class(pod) == "BestEffort"
        case "NotBestEffort":
            return qos_class(pod) != "BestEffort"
        case "PriorityClass":
            given = str(find_at(pod, "spec", "priorityClassName") or "")
            values: list[str] = expression.get("values") or []
            match expression.get("operator"):
                case "In":
                    return given in values
                case "NotIn":
                    return given not in values
                case "DoesNotExist":
                    return not given
                case _:
                    return bool(given)
        case "CrossNamespacePodAffinity":
            terms = [
                term
                for kind in ("podAffinity", "podAntiAffinity")
                for term in find_at(
                    pod, "spec", "affinity", kind, "requiredDuringSchedulingIgnoredDuringExecution"
                )
                or ()
            ]
            return any(
                each.get("namespaces") or each.get("namespaceSelector") is not None
                for each in terms
            )
        case _:
            return False
