"""Whose an object of a cluster is before we come: pure decisions, by marks that are on the object.

    >>> labels = {"kustomize.toolkit.fluxcd.io/name": "shop"}
    >>> owner_of({"kind": "Service", "metadata": {"name": "web", "labels": labels}}).text
    'Flux Kustomization shop'

The first of these that says something decides, for a mark further up is put there by whoever would
undo what we write, and those further down are often left over or copied:

    a controller's ownerReference     a ReplicaSet has a copy of its Deployment's annotations, those
                                      of Argo CD and hubs too: only the reference tells them apart
    a hub's stamps                    what a hub places comes from manifests, with all their marks
    Argo CD, Flux                     they apply what Helm and kustomize rendered, marks and all
    OLM, the cluster itself           written once, and put back
    Helm, kustomize, other tools      they wrote once, and come back only when somebody runs them
    server-side apply, kubectl apply  somebody's files
    nobody

Everything here was written by somebody else: values of any type, of any size, and lies. A lie costs
its author a refusal, or the hub a fight about the object; nothing is read or written because of it.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple, cast

from clusterspace.apis import stamps
from clusterspace.kube.managed_fields.managers import APPLY
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, namespace_of
from clusterspace.kube.plain_text import line


class OwnerKind(Enum):
    """What kind of thing looks after an object."""

    THIS_HUB = "ThisHub"
    OTHER_HUB = "OtherHub"
    CONTROLLER = "Controller"
    """A controller of Kubernetes made it: a ReplicaSet, a Pod, an EndpointSlice."""
    OPERATOR = "Operator"
    ARGO_CD = "ArgoCD"
    FLUX = "Flux"
    CLUSTER = "Cluster"
    """The cluster makes it wherever it is missing: default roles, `kube-root-ca.crt`."""
    HELM = "Helm"
    KUSTOMIZE = "Kustomize"
    OTHER_TOOL = "OtherTool"
    SERVER_SIDE_APPLY = "ServerSideApply"
    KUBECTL_APPLY = "KubectlApply"
    UNMANAGED = "Unmanaged"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who looks after an object."""

    kind: OwnerKind
    name: str
    """The application, release, object or manager; empty when the mark names none."""
    is_reconciling: bool
    """Whether somebody else would put back what we change."""
    evidence: str
    """The field that says so, in words."""

    @property
    def text(self) -> str:
        """The owner as a sentence names it."""
        return f"{_TITLES[self.kind]} {self.name}".rstrip()


_TITLES: Final = {
    OwnerKind.THIS_HUB: "this hub, Work",
    OwnerKind.OTHER_HUB: "another hub:",
    OwnerKind.CONTROLLER: "Kubernetes' controller of",
    OwnerKind.OPERATOR: "the operator of",
    OwnerKind.ARGO_CD: "Argo CD application",
    OwnerKind.FLUX: "Flux",
    OwnerKind.CLUSTER: "the cluster itself:",
    OwnerKind.HELM: "Helm release",
    OwnerKind.KUSTOMIZE: "kustomize",
    OwnerKind.OTHER_TOOL: "the tool",
    OwnerKind.SERVER_SIDE_APPLY: "server-side apply by",
    OwnerKind.KUBECTL_APPLY: "kubectl apply",
    OwnerKind.UNMANAGED: "nobody",
}

_MOST_NAME: Final = 128
_MOST_ENTRIES: Final = 200
"""Kubernetes keeps ten managers that update; more than this are no object of anybody's."""

_ANYBODY: Final[Container[str]] = frozenset[str]()


def owner_of(kube_object: Object, own_ids: Container[str] = _ANYBODY) -> Owner:
    """Return who looks after an object.

    `own_ids` are the permanent IDs of this hub's Works and bindings: what bears another is another
    hub's. Without them every hub is another one.
    """
    metadata = metadata_of(kube_object)
    marks = _Marks(
        kube_object,
        tuple(_writers(metadata.get("managedFields"))),
        tuple(_references(metadata.get("ownerReferences"))),
        own_ids,
    )
    found = (rule(marks) for rule in _RULES)
    return next((each for each in found if each is not None), _nobody(marks))


class _Writer(NamedTuple):
    """An entry of managedFields that is about the object itself, not about its status or scale."""

    manager: str
    is_apply: bool


class _Reference(NamedTuple):
    group: str
    kind: str
    name: str
    is_controller: bool


@dataclass(frozen=True, slots=True)
class _Marks:
    """What an object says of itself, without what is not of the type it should be."""

    kube_object: Object
    writers: tuple[_Writer, ...]
    references: tuple[_Reference, ...]
    own_ids: Container[str]

    def label(self, key: str) -> str:
        """Return a label, or nothing."""
        return _text(find_at(self.kube_object, "metadata", "labels", key))

    def annotation(self, key: str) -> str:
        """Return an annotation, or nothing."""
        return _text(find_at(self.kube_object, "metadata", "annotations", key))

    def writer(self, *managers: str) -> _Writer | None:
        """Return the first of these managers that owns fields."""
        return next((each for each in self.writers if each.manager in managers), None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _writers(value: Any) -> Iterator[_Writer]:
    entries = cast("list[Any]", value) if isinstance(value, list) else []
    for each in islice(entries, _MOST_ENTRIES):
        manager = _text(find_at(each, "manager"))
        if manager and not find_at(each, "subresource"):
            yield _Writer(manager, find_at(each, "operation") == APPLY)


def _references(value: Any) -> Iterator[_Reference]:
    owners = cast("list[Any]", value) if isinstance(value, list) else []
    for each in islice(owners, _MOST_ENTRIES):
        kind, name = _text(find_at(each, "kind")), _text(find_at(each, "name"))
        if kind and name:
            group = _text(find_at(each, "apiVersion")).rpartition("/")[0]
            yield _Reference(group, kind, name, find_at(each, "controller") is True)


def _owner(kind: OwnerKind, name: str, evidence: str, *, is_reconciling: bool) -> Owner:
    return Owner(kind, line(name, _MOST_NAME), is_reconciling, line(evidence, 3 * _MOST_NAME))


# -- who would put things back ---------------------------------------------------------------------

_HUB_REFERENCES: Final = {
    ("placement.kubernetes-fleet.io", "AppliedWork"): "KubeFleet",
    ("multicluster.x-k8s.io", "AppliedWork"): "KubeFleet",
    ("work.open-cluster-management.io", "AppliedManifestWork"): "Open Cluster Management",
}
_KUBEFLEET_MANAGER: Final = "work-api-agent"
_KUBEFLEET_ANNOTATIONS: Final = (
    "kubernetes-fleet.io/last-applied-configuration",
    "kubernetes-fleet.io/spec-hash",
)
_ID_LABELS: Final = (stamps.WORK_ID, stamps.BINDING_ID, stamps.CLUSTER_BINDING_ID)


def _is_of_kubernetes(group: str) -> bool:
    """Whether a group is Kubernetes' own: without a dot, or its `.k8s.io`, but for CRDs of SIGs."""
    return "." not in group or (group.endswith(".k8s.io") and not group.endswith(".x-k8s.io"))


def _by_reference(marks: _Marks) -> Owner | None:
    for each in marks.references:
        where = f"metadata.ownerReferences has {each.kind} {each.name}"
        hub = _HUB_REFERENCES.get((each.group, each.kind))
        if hub:
            name = f"{hub} {each.kind} {each.name}"
            return _owner(OwnerKind.OTHER_HUB, name, where, is_reconciling=True)
        if each.is_controller and _is_of_kubernetes(each.group):
            name = f"{each.kind} {each.name}"
            why = f"{where} as its controller"
            return _owner(OwnerKind.CONTROLLER, name, why, is_reconciling=True)
        if not _is_of_kubernetes(each.group):
            # Not every operator calls itself the controller. Whoever deletes with its own object
            # what it has made can be expected to keep it as well.
            why = f"{where} of {each.group}" + (" as its controller" * each.is_controller)
            name = f"{each.kind} {each.name}"
            return _owner(OwnerKind.OPERATOR, name, why, is_reconciling=True)
    return None


def _by_hub(marks: _Marks) -> Owner | None:
    label, annotation = marks.label, marks.annotation
    id_label = next((each for each in _ID_LABELS if label(each)), "")
    if label(stamps.MANAGED) == "true" or id_label:
        space, work = annotation(stamps.WORK_NAMESPACE), annotation(stamps.WORK_NAME)
        name = "/".join(each for each in (space, work) if each)
        if any(label(each) and label(each) in marks.own_ids for each in _ID_LABELS):
            why = f"the label {id_label} is an ID that this hub gave"
            return _owner(OwnerKind.THIS_HUB, name, why, is_reconciling=False)
        said = f"{id_label}={label(id_label)}" if id_label else f"{stamps.MANAGED}=true"
        name = f"Work {name}" if name else "of Karmada's kind"
        return _owner(OwnerKind.OTHER_HUB, name, f"the label {said}", is_reconciling=True)
    note = next((each for each in _KUBEFLEET_ANNOTATIONS if annotation(each)), "")
    if note or marks.writer(_KUBEFLEET_MANAGER):
        why = f"the annotation {note}" if note else f"the field manager {_KUBEFLEET_MANAGER}"
        return _owner(OwnerKind.OTHER_HUB, "KubeFleet", why, is_reconciling=True)
    return None


_ARGO_TRACKING: Final = "argocd.argoproj.io/tracking-id"
_ARGO_INSTANCE: Final = "argocd.argoproj.io/instance"
_ARGO_MANAGERS: Final = ("argocd-controller", "argocd-application-controller")
_COMMON_INSTANCE: Final = "app.kubernetes.io/instance"


def _by_argo_cd(marks: _Marks) -> Owner | None:
    tracking = marks.annotation(_ARGO_TRACKING)
    if tracking and _is_tracked_as(tracking, marks.kube_object):
        application = tracking.partition(":")[0]
        why = f"the annotation {_ARGO_TRACKING}={tracking}"
        return _owner(OwnerKind.ARGO_CD, application, why, is_reconciling=True)
    application = marks.label(_ARGO_INSTANCE)
    if application:
        why = f"the label {_ARGO_INSTANCE}={application}"
        return _owner(OwnerKind.ARGO_CD, application, why, is_reconciling=True)
    writer = marks.writer(*_ARGO_MANAGERS)
    if writer:
        # Where it tracks by the label that every chart has, only its hand gives it away.
        application = marks.label(_COMMON_INSTANCE)
        why = f"the field manager {writer.manager}"
        return _owner(OwnerKind.ARGO_CD, application, why, is_reconciling=True)
    return None


def _is_tracked_as(tracking: str, kube_object: Object) -> bool:
    """Whether a tracking ID, `APP:GROUP/KIND:NAMESPACE/NAME`, is of this very object.

    Argo CD ignores one that was copied from another object, and so do we. Of objects without a
    namespace it writes the namespace of the application's destination.
    """
    _, _, place = tracking.partition(":")
    what, _, where = place.rpartition(":")
    group = str(kube_object.get("apiVersion") or "").rpartition("/")[0]
    namespace, _, name = where.partition("/")
    is_same = what == f"{group}/{kube_object.get('kind')}" and name == name_of(kube_object)
    return is_same and namespace_of(kube_object) in ("", namespace)


_FLUX_KUSTOMIZE: Final = "kustomize.toolkit.fluxcd.io"
_FLUX_HELM: Final = "helm.toolkit.fluxcd.io"
_FLUX_MANAGERS: Final = {"kustomize-controller": "Kustomization", "helm-controller": "HelmRelease"}
_FLUX_PAUSED: Final = (("reconcile", "disabled"), ("ssa", "Ignore"), ("ssa", "IfNotPresent"))


def _by_flux(marks: _Marks) -> Owner | None:
    paused = next(
        (
            f"{_FLUX_KUSTOMIZE}/{key}={value}"
            for key, value in _FLUX_PAUSED
            if marks.annotation(f"{_FLUX_KUSTOMIZE}/{key}").lower() == value.lower()
        ),
        "",
    )
    for group, kind in ((_FLUX_KUSTOMIZE, "Kustomization"), (_FLUX_HELM, "HelmRelease")):
        name = marks.label(f"{group}/name")
        if name:
            space = marks.label(f"{group}/namespace")
            why = f"the label {group}/name={name}"
            is_paused = bool(paused) and group == _FLUX_KUSTOMIZE
            why += f", but the annotation {paused}" * is_paused
            named = f"{kind} {space}/{name}" if space else f"{kind} {name}"
            return _owner(OwnerKind.FLUX, named, why, is_reconciling=not is_paused)
    writer = marks.writer(*_FLUX_MANAGERS)
    if writer:
        why = f"the field manager {writer.manager}"
        return _owner(OwnerKind.FLUX, _FLUX_MANAGERS[writer.manager], why, is_reconciling=True)
    return None


def _by_lifecycle_manager(marks: _Marks) -> Owner | None:
    for label in ("olm.owner", "olm.copiedFrom"):
        name = marks.label(label)
        if name:
            kind = marks.label("olm.owner.kind") or "ClusterServiceVersion"
            why = f"the label {label}={name} of Operator Lifecycle Manager"
            return _owner(OwnerKind.OPERATOR, f"{kind} {name}", why, is_reconciling=True)
    if marks.label("olm.managed") == "true":
        why = "the label olm.managed=true of Operator Lifecycle Manager"
        return _owner(OwnerKind.OPERATOR, "a ClusterServiceVersion", why, is_reconciling=True)
    return None


_MADE_BY_CLUSTER: Final = {
    ("ConfigMap", "kube-root-ca.crt"): "every namespace has one",
    ("ServiceAccount", "default"): "every namespace has one",
    ("Service", "kubernetes"): "it is where the cluster is reached from inside",
    ("Endpoints", "kubernetes"): "it is where the cluster is reached from inside",
    ("EndpointSlice", "kubernetes"): "it is where the cluster is reached from inside",
}
_CLUSTER_LABELS: Final = (
    ("kubernetes.io/bootstrapping", "rbac-defaults"),
    ("addonmanager.kubernetes.io/mode", "Reconcile"),
    ("kube-aggregator.kubernetes.io/automanaged", "true"),
    ("kube-aggregator.kubernetes.io/automanaged", "onstart"),
    ("endpoints.kubernetes.io/managed-by", "endpoint-controller"),
    ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"),
    ("endpointslice.kubernetes.io/managed-by", "endpointslicemirroring-controller.k8s.io"),
)


def _by_cluster(marks: _Marks) -> Owner | None:
    kind, name = str(marks.kube_object.get("kind")), name_of(marks.kube_object)
    made = _MADE_BY_CLUSTER.get((kind, name))
    # A Service `kubernetes` in another namespace than `default` is somebody's own.
    if made and (name != "kubernetes" or namespace_of(marks.kube_object) == "default"):
        why = f"its name is {name}, and {made}"
        return _owner(OwnerKind.CLUSTER, f"{kind} {name}", why, is_reconciling=True)
    for label, value in _CLUSTER_LABELS:
        if marks.label(label) == value:
            why = f"the label {label}={value}"
            return _owner(OwnerKind.CLUSTER, f"{kind} {name}", why, is_reconciling=True)
    return None


# -- who wrote once --------------------------------------------------------------------------------

_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_HELM_RELEASE: Final = "meta.helm.sh/release-name"
_HELM_NAMESPACE: Final = "meta.helm.sh/release-namespace"
_KUSTOMIZE_ANNOTATIONS: Final = (
    "config.kubernetes.io/origin",
    "alpha.config.kubernetes.io/transformations",
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_CLIENT_SIDE: Final = "kubectl-client-side-apply"
_LIVING: Final = ("operator", "controller")
"""How tools call themselves that stay in the cluster and go on writing."""


def _by_helm(marks: _Marks) -> Owner | None:
    release, space = marks.annotation(_HELM_RELEASE), marks.annotation(_HELM_NAMESPACE)
    if release:
        name = f"{space}/{release}" if space else release
        why = f"the annotation {_HELM_RELEASE}={release}"
        return _owner(OwnerKind.HELM, name, why, is_reconciling=False)
    if marks.label(_MANAGED_BY) == "Helm":
        # A chart that somebody rendered has the label, and no release knows of it.
        why = f"the label {_MANAGED_BY}=Helm"
        name = marks.label(_COMMON_INSTANCE)
        return _owner(OwnerKind.HELM, name, why, is_reconciling=False)
    return None


def _by_kustomize(marks: _Marks) -> Owner | None:
    version = marks.label(_MANAGED_BY)
    if version == "kustomize" or version.startswith("kustomize-"):
        why = f"the label {_MANAGED_BY}={version}"
        return _owner(OwnerKind.KUSTOMIZE, "", why, is_reconciling=False)
    note = next((each for each in _KUSTOMIZE_ANNOTATIONS if marks.annotation(each)), "")
    if note:
        return _owner(OwnerKind.KUSTOMIZE, "", f"the annotation {note}", is_reconciling=False)
    return None


def _by_other_tool(marks: _Marks) -> Owner | None:
    tool = marks.label(_MANAGED_BY)
    if not tool:
        return None
    is_living = any(word in tool.lower() for word in _LIVING)
    kind = OwnerKind.OPERATOR if is_living else OwnerKind.OTHER_TOOL
    return _owner(kind, tool, f"the label {_MANAGED_BY}={tool}", is_reconciling=is_living)


def _by_apply(marks: _Marks) -> Owner | None:
    applier = next((each.manager for each in marks.writers if each.is_apply), "")
    if applier:
        is_living = any(word in applier.lower() for word in _LIVING)
        kind = OwnerKind.OPERATOR if is_living else OwnerKind.SERVER_SIDE_APPLY
        why = f"metadata.managedFields has {applier}, which applies"
        return _owner(kind, applier, why, is_reconciling=is_living)
    if marks.annotation(_LAST_APPLIED):
        why = f"the annotation {_LAST_APPLIED}"
        return _owner(OwnerKind.KUBECTL_APPLY, "", why, is_reconciling=False)
    if marks.writer(_CLIENT_SIDE):
        why = f"the field manager {_CLIENT_SIDE}"
        return _owner(OwnerKind.KUBECTL_APPLY, "", why, is_reconciling=False)
    return None


def _nobody(marks: _Marks) -> Owner:
    wrote = ", ".join(dict.fromkeys(each.manager for each in marks.writers[:5]))
    why = f"no mark of any tool; written by {wrote}" if wrote else "no mark of any tool"
    return _owner(OwnerKind.UNMANAGED, "", why, is_reconciling=False)


_RULES: Final[tuple[Callable[[_Marks], Owner | None], ...]] = (
    _by_reference,
    _by_hub,
    _by_argo_cd,
    _by_flux,
    _by_lifecycle_manager,
    _by_cluster,
    _by_helm,
    _by_kustomize,
    _by_other_tool,
    _by_apply,
)
"""The order of the table above."""
