"""Kinds, and fields of policies, that are stored here without being obeyed.

Elsewhere an APIService leads to another server, a ServiceCIDR has addresses. Whoever relies on that
must hear that nothing of the kind happens here, with every write and not from a page nobody opened.
What steers kubelets, schedulers or controllers (a NetworkPolicy, a PriorityClass) is not listed:
here it is a template, and it acts where it is placed. Kinds of Karmada and KubeFleet that only
their own controllers act on are: those may run on this hub, or may not.

docs/kubernetes-compatibility.md and docs/karmada-compatibility.md show the same tables to people; a
test keeps them equal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.kube.objects import Object

_ON_MEMBERS: Final = "create it on the members it is for"


@dataclass(frozen=True, slots=True)
class Unenforced:
    """The warning about a kind that is not enforced: the consequence, and what to do instead."""

    consequence: str
    instead: str


KINDS: Final[Mapping[tuple[str, str], Unenforced]] = {
    ("apiregistration.k8s.io", "APIService"): Unenforced(
        "no request is passed on to an extension server",
        "define the kinds with a CustomResourceDefinition, or create it on the members it is for",
    ),
    ("networking.k8s.io", "ServiceCIDR"): Unenforced(
        "addresses of Services come from a fixed range", _ON_MEMBERS
    ),
    ("networking.k8s.io", "IPAddress"): Unenforced(
        "it reserves no address of a Service", _ON_MEMBERS
    ),
}  # fmt: skip
"""Group and kind to what does not happen. An entry leaves with the change that enforces it."""


_PLACEMENT: Final = "placement.kubernetes-fleet.io"

UNATTENDED: Final[Mapping[tuple[str, str], str]] = {
    ("networking.karmada.io", "MultiClusterIngress"): "multi-cluster-ingress-nginx",
}
"""Group and kind that people write, and that we serve for the controllers of another project. An
entry leaves with the change that acts on it."""


@dataclass(frozen=True, slots=True)
class UnheededField:
    """A field that a policy may have, and what happens as if it were not there."""

    path: tuple[str, ...]
    consequence: str
    value: str = ""
    """The one value that asks for something; any value does when empty."""

    @property
    def field(self) -> str:
        """The field as people write it, with its value when only that one is meant."""
        return f"{'.'.join(self.path)}{': ' if self.value else ''}{self.value}"

    def is_in(self, kube_object: Object) -> bool:
        """Whether an object asks for what is not done; of a list, whether any entry does."""
        return _asks(kube_object, self.path, self.value)


def _asks(value: Any, path: tuple[str, ...], wanted: str) -> bool:
    if isinstance(value, list):
        return any(_asks(each, path, wanted) for each in cast("list[Any]", value))
    if path:
        # Asked before the schema: a text where a map belongs is refused a moment later.
        found = cast("Object", value).get(path[0]) if isinstance(value, dict) else None
        return found is not None and _asks(found, path[1:], wanted)
    return value == wanted if wanted else value is not False and value != {}


_POLICY_FIELDS: Final = (
    UnheededField(
        ("spec", "placement", "clusterTolerations", "tolerationSeconds"),
        "nothing is evicted from a tainted cluster, after however long, unless the controllers "
        "were started with --enable-no-execute-taint-eviction",
    ),
    UnheededField(("spec", "association"), "spec.propagateDeps decides about dependencies"),
)

_PLACEMENT_FIELDS: Final = (
    UnheededField(
        ("spec", "strategy", "reportBackStrategy"),
        "statuses are on the placement and on the templates",
    ),
)

FIELDS: Final[Mapping[tuple[str, str], tuple[UnheededField, ...]]] = {
    ("policy.karmada.io", "PropagationPolicy"): _POLICY_FIELDS,
    ("policy.karmada.io", "ClusterPropagationPolicy"): _POLICY_FIELDS,
    ("multicluster.x-k8s.io", "ServiceImport"): (
        UnheededField(
            ("spec", "ips"), "each cluster gives the derived Service an address of its own"
        ),
    ),
    ("search.karmada.io", "ResourceRegistry"): (
        UnheededField(
            ("spec", "backendStore", "openSearch"),
            "nothing is sent to OpenSearch; clusters themselves answer search/cache and the proxy",
        ),
    ),
    (_PLACEMENT, "ClusterResourcePlacement"): _PLACEMENT_FIELDS,
    (_PLACEMENT, "ResourcePlacement"): _PLACEMENT_FIELDS,
    ("cluster.kubernetes-fleet.io", "MemberCluster"): (
        UnheededField(
            ("spec", "deleteOptions"),
            "a leave waits for nothing but its agent",
        ),
    ),
    (_PLACEMENT, "ClusterResourceOverride"): (
        UnheededField(
            ("spec", "clusterResourceSelectors", "selectionScope"),
            "a Namespace means all that is in it",
            value="NamespaceOnly",
        ),
    ),
}
"""Group and kind to the fields that nothing acts on. A row leaves with the change that does."""


class UnenforcedKinds(Plugin):
    """Warns whoever writes an object that does not act here; refuses nothing."""

    def __init__(
        self,
        server: str = "this control plane",
        instead: str = "",
        consequences: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        self._server = server
        self._instead = instead
        self._consequences = consequences or {}

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is."""
        info = admission.served.info
        project = UNATTENDED.get((info.group, info.kind))
        if project is not None and not admission.subresource:
            admission.warn(
                f"{info.kind} is stored, and no controller of {self._server} acts on it: "
                f"those of {project} do, where they run"
            )
        for field in FIELDS.get((info.group, info.kind), ()):
            if not admission.subresource and field.is_in(admission.new):
                admission.warn(
                    f"{field.field} is stored but not acted on by {self._server}: "
                    f"{field.consequence}"
                )
        row = KINDS.get((info.group, info.kind))
        # Who writes a status or a finalizer is a controller at work, and relies on nothing.
        if row is None or admission.subresource:
            return admission.new
        instead = self._instead or row.instead
        consequence = self._consequences.get((info.group, info.kind), row.consequence)
        admission.warn(
            f"{info.kind} is stored but not enforced by {self._server}: {consequence}; {instead}"
        )
        return admission.new


ON_SIMULATED_MEMBER: Final = UnenforcedKinds(
    "this simulated member",
    "a real cluster enforces it",
)
"""The same kinds on a simulated member: it is built on the hub, and no more obedient."""
