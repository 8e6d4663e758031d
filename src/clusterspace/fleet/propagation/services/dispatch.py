"""The Works that a MultiClusterService calls for: orders to report, and endpoints of others. Pure.

order       in every provider's execution namespace, never dispatched: it asks for a report
dispatched  in every consumer's: an EndpointSlice `PROVIDER-NAME` for the Service
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.apis import stamps
from clusterspace.apis.services import (
    DISPATCHER,
    ENDPOINT_SLICE,
    MANAGED_BY,
    MCS_ID,
    MCS_NAME,
    MCS_NAMESPACE,
    PROVISION_CLUSTER,
    SERVICE_NAME,
    SLICE_API_VERSION,
    Endpoints,
    dispatched_slice_names,
)
from clusterspace.apis.works import (
    MULTI_CLUSTER_SERVICE,
)
from clusterspace.client.requests import key_of
from clusterspace.controllers.informers import IndexKeys
from clusterspace.fleet.propagation.works.rendering import Outline
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    labels_of,
    name_of,
    namespace_of,
)

BY_SERVICE: Final = "multi-cluster-service"

FindWork: TypeAlias = Callable[[str], Object | None]
"""Returns the Work that is there under a key."""


def by_multi_cluster_service(work: Object) -> Iterable[str]:
    """Index Works by the MultiClusterService they are of, orders and dispatched ones."""
    labels = labels_of(work)
    name, namespace = labels.get(MCS_NAME), labels.get(MCS_NAMESPACE)
    return (key_of(namespace, name),) if name and namespace else ()


SERVICE_INDEXES: Final[dict[str, IndexKeys]] = {BY_SERVICE: by_multi_cluster_service}


def marks_of(service: Object) -> dict[str, str]:
    """Return the labels by which the Works of a MultiClusterService are found."""
    return {MCS_NAME: name_of(service), MCS_NAMESPACE: namespace_of(service)}


def provider_of(work: Object) -> str:
    """Return the cluster whose endpoints a Work dispatches; empty for one that is an order."""
    return annotations_of(work).get(PROVISION_CLUSTER, "")


def order_name(namespace: str, name: str) -> str:
    """Return the name of the Works that ask for the endpoints of a Service."""
    return stamps.work_name(MULTI_CLUSTER_SERVICE, namespace, name)


def order_for(service: Object, cluster: str) -> Outline:
    """Return the Work that asks a provider for the endpoints of its Service."""
    # Of the object nothing but its name: it is not put on the cluster, and a change of who
    # consumes is no news to those who provide.
    metadata = {"name": name_of(service), "namespace": namespace_of(service)}
    asked = {key: service[key] for key in ("apiVersion", "kind")} | {"metadata": metadata}
    labels = marks_of(service)
    if permanent_id := labels_of(service).get(MCS_ID):
        labels[MCS_ID] = permanent_id
    return Outline(
        cluster=cluster,
        template=asked,
        manifest=asked,
        labels=labels,
        options={"suspendDispatching": True},
    )


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The slices that consumers are to have, and those for which no name is free."""

    outlines: tuple[Outline, ...] = ()
    refused: tuple[str, ...] = ()


def plan_dispatch(
    service: Object,
    reports: Mapping[str, Endpoints | None],
    consumers: Iterable[str],
    ports: frozenset[str] | None,
    find: FindWork,
) -> Dispatch:
    """Return the Works that bring the endpoints of providers to consumers.

    Nobody gets its own endpoints: the cluster has those already. A name may be of two providers:
    whoever has it keeps it, and the other gets one of its own.
    """
    outlines: dict[str, Outline] = {}
    refused: list[str] = []
    for consumer in sorted(consumers):
        for provider, report in sorted(reports.items()):
            if provider == consumer or report is None:
                continue
            for reported in report.slices:
                names = dispatched_slice_names(provider, str(reported["name"]))
                made = [
                    _outline(name, reported, service, provider, consumer, ports) for name in names
                ]
                free = (
                    each
                    for each in made
                    if each.key not in outlines and _is_free(find(each.key), each)
                )
                if (chosen := next(free, None)) is not None:
                    outlines[chosen.key] = chosen
                else:
                    refused.append(f"{names[0]} on {consumer}")
    return Dispatch(tuple(outlines.values()), tuple(refused))


def _outline(
    name: str,
    reported: Object,
    service: Object,
    provider: str,
    consumer: str,
    ports: frozenset[str] | None,
) -> Outline:
    metadata = {
        "name": name,
        "namespace": namespace_of(service),
        "labels": {SERVICE_NAME: name_of(service), MANAGED_BY: DISPATCHER},
    }
    exposed = [each for each in reported["ports"] if ports is None or each["name"] in ports]
    slice_ = {
        "apiVersion": SLICE_API_VERSION,
        "kind": ENDPOINT_SLICE,
        "metadata": metadata,
        "addressType": reported["addressType"],
        "endpoints": reported["endpoints"],
        "ports": exposed,
    }
    return Outline(
        cluster=consumer,
        template=slice_,
        manifest=slice_,
        labels=marks_of(service),
        annotations={PROVISION_CLUSTER: provider},
    )


def _is_free(existing: Object | None, outline: Outline) -> bool:
    if existing is None:
        return True
    marks = {key: labels_of(existing).get(key) for key in outline.labels}
    is_same = provider_of(existing) == outline.annotations[PROVISION_CLUSTER]
    return is_same and marks == outline.labels


def is_reported(work: Object, provider: str, report: Endpoints) -> bool:
    """Whether a dispatched Work stands for a slice that its provider reports."""
    namespaced = {
        stamps.work_name(ENDPOINT_SLICE, labels_of(work).get(MCS_NAMESPACE, ""), name)
        for reported in report.slices
        for name in dispatched_slice_names(provider, str(reported["name"]))
    }
    return name_of(work) in namespaced
