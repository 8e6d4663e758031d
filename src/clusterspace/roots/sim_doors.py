"""Where a simulated member answers what a plain hub cannot: its pods' streams and its metrics."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from clusterspace.apiserver import forms
from clusterspace.apiserver.admissions import Admission
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.custom_rules import CustomRules
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.responses import value_response
from clusterspace.apiserver.options import read_list_options
from clusterspace.apiserver.selection import select
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.tables import table_of
from clusterspace.apiserver.verbs.answers import answer_object
from clusterspace.apiserver.verbs.parts import Verb
from clusterspace.apiserver.verbs.resource_request import ResourceRequest
from clusterspace.builtins.printers.cells import AGE, NAME, Printer, printer, shown
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of
from clusterspace.kube.resources import GroupResource, ResourceInfo
from clusterspace.kube.tables import partial_metadata_list
from clusterspace.sim.api import NODE, POD
from clusterspace.sim.fault_rules import CONFIG_MAP, NAMESPACE, read_rules
from clusterspace.sim.mirror import Mirror
from clusterspace.sim.placement import Placement
from clusterspace.sim.pod_states import phase_of
from clusterspace.sim.pod_streams import PodStreams
from clusterspace.sim.usage import node_metrics, pod_metrics

_GROUP: Final = "metrics.k8s.io"
_VERSION: Final = "v1beta1"
_USAGE: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_MEASURED: Final = {"timestamp": {"type": "string"}, "window": {"type": "string"}}


# -- streams -----------------------------------------------------------------------------------


def pod_verbs(streams: PodStreams) -> Mapping[tuple[str, str], Verb]:
    """Return the verbs of a pod's doors; those that lead in are creates, whatever the method."""
    doors = {"exec": streams.execute, "attach": streams.attach, "portforward": streams.port_forward}
    verbs = {(f"/pods/{part}", "create"): _door(door) for part, door in doors.items()}
    return {**verbs, ("/pods/log", "get"): _door(streams.log)}


def _door(answer: Callable[[RequestContext, Object], Awaitable[Response | None]]) -> Verb:
    async def verb(ask: ResourceRequest) -> Response | None:
        entry = await ask.hub.store.get(ask.key)
        if entry is None:
            raise ask.not_found()
        return await answer(ask.context, forms.decode_stored(entry, ask.served.form))

    return verb


# -- metrics -----------------------------------------------------------------------------------


def metrics_resources() -> tuple[Served, ...]:
    """Return what metrics.k8s.io serves."""
    containers = {"type": "array", "items": {"type": "object", "properties": {"usage": _USAGE}}}
    return (
        _served("PodMetrics", "pods", {"containers": containers}, _POD_PRINTER, namespaced=True),
        _served("NodeMetrics", "nodes", {"usage": _USAGE}, _NODE_PRINTER, namespaced=False),
    )


_POD_PRINTER: Final = printer(NAME, AGE)
_NODE_PRINTER: Final = printer(
    NAME,
    shown("CPU", lambda held: find_at(held, "usage", "cpu")),
    shown("Memory", lambda held: find_at(held, "usage", "memory")),
)


def _served(
    kind: str, plural: str, fields: Object, own_printer: Printer, *, namespaced: bool
) -> Served:
    info = ResourceInfo(
        group=_GROUP,
        version=_VERSION,
        kind=kind,
        plural=plural,
        singular="",
        namespaced=namespaced,
        verbs=("get", "list"),
    )
    schema: Object = {"type": "object", "properties": {**_MEASURED, **fields}}
    return Served(
        info=info,
        rules=CustomRules(info.group_version_kind, schema, has_status=False),
        form=forms.Form.of(
            kind=kind,
            api_version=info.api_version,
            stored_version=info.api_version,
            bare_items=False,
        ),
        printer=own_printer,
        storage=GroupResource(_GROUP, plural),
        is_custom=True,
    )


def metrics_verbs(mirror: Mirror, placement: Placement) -> Mapping[tuple[str, str], Verb]:
    """Return the verbs of metrics.k8s.io: nothing is stored, everything is worked out."""

    def of_pods(now: float) -> Iterable[Object]:
        running = (pod for pod in mirror.all(POD) if phase_of(pod) == "Running")
        return (pod_metrics(pod, now) for pod in running)

    def of_nodes(now: float) -> Iterable[Object]:
        nodes = mirror.all(NODE)
        return (node_metrics(node, placement.on_node(name_of(node)), now) for node in nodes)

    return {
        (f"{_GROUP}/pods", "list"): _lister(of_pods),
        (f"{_GROUP}/pods", "get"): _getter(of_pods),
        (f"{_GROUP}/nodes", "list"): _lister(of_nodes),
        (f"{_GROUP}/nodes", "get"): _getter(of_nodes),
    }


def _getter(measure: Callable[[float], Iterable[Object]]) -> Verb:
    async def get(ask: ResourceRequest) -> Response:
        for each in measure(ask.hub.clock.now()):
            if (namespace_of(each), name_of(each)) == (ask.info.namespace, ask.info.name):
                return await answer_object(ask, 200, each)
        raise ask.not_found()

    return get


def _lister(measure: Callable[[float], Iterable[Object]]) -> Verb:
    async def list_metrics(ask: ResourceRequest) -> Response:
        now, options = ask.hub.clock.now(), read_list_options(ask.info.query, is_watch=False)
        selection = select(ask.served, options)
        found = [
            each
            for each in measure(now)
            if ask.info.namespace in ("", namespace_of(each)) and selection.matches(each)
        ]
        found.sort(key=lambda each: (namespace_of(each), name_of(each)))
        metadata: Object = {}
        if ask.representation.is_table:
            shown_as = ask.served.printer
            body = table_of(
                found, shown_as, list_metadata=metadata, include=options.include, now=now
            )
        elif ask.representation.is_metadata_only:
            body = partial_metadata_list(found, metadata)
        else:
            info = ask.served.info
            body = {
                "kind": info.list_kind,
                "apiVersion": info.api_version,
                "metadata": metadata,
                "items": found,
            }
        return value_response(ask.context, 200, body, ask.representation.media_type)

    return list_metrics


# -- faults ------------------------------------------------------------------------------------


class FaultRulesReader:
    """The plug-in that refuses fault rules nobody could follow."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Read the rules in the one ConfigMap that has them; let everything else pass."""
        new = admission.new
        del hub
        place = (namespace_of(new), name_of(new))
        if admission.is_of("", "ConfigMap") and place == (NAMESPACE, CONFIG_MAP):
            read_rules(new.get("data"))
        return new
