"""What is known of a template: its replicas, what it needs beside it, and what members keep."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from clusterspace.apis import kinds, stamps, third_party
from clusterspace.apis.kinds import (
    DEPLOYMENT,
    JOB,
    REPLICA_SET,
    STATEFUL_SET,
    kind_of,
    pod_spec_of,
)
from clusterspace.builtins.pods import effective, without_token_volume
from clusterspace.errors import Malformed
from clusterspace.kube.managed_fields.field_sets import Path
from clusterspace.kube.managed_fields.managers import raw_entries, read_entries
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    with_metadata,
    with_value,
    without_value,
)
from clusterspace.kube.quantities import parse_quantity
from clusterspace.kube.resources import GroupKind

# -- how many replicas it wants, what each needs of a cluster, and how a share is written ------


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many there are to be, and `replicaRequirements` as bindings write it, if any."""

    count: int
    requirements: Object | None = None


def replicas_in(template: Object) -> Replicas | None:
    """Return the replicas a template asks for; None for kinds that have no replicas."""
    match kinds.kind_of(template):
        case kinds.DEPLOYMENT | kinds.REPLICA_SET | kinds.STATEFUL_SET:
            count = int(find_at(template, "spec", "replicas") or 0)
        case kinds.JOB:
            # As many pods as run at once: never more than are left to complete.
            count = int(find_at(template, "spec", "parallelism") or 0)
            completions = find_at(template, "spec", "completions")
            count = count if completions is None else min(count, int(completions))
        case kinds.POD:
            count = 1
        case kind:
            found = _third_party_count(kind, template)
            if found is None:
                return None
            count = found
    return Replicas(count, requirements_of(kinds.pod_spec_of(template) or {}))


def _third_party_count(kind: GroupKind, template: Object) -> int | None:
    field = third_party.REPLICA_FIELDS.get(kind)
    count = None if field is None else find_at(template, "spec", field)
    if field == "replicas" and count is None:
        return 1  # what their own controllers take it for
    # A part of all nodes, in percent, cannot be shared out.
    return count if isinstance(count, int) else None


def components_in(template: Object) -> list[Object] | None:
    """Return the parts of a workload as bindings write them; None for kinds that have none."""
    kind = kind_of(template)
    if kind not in third_party.WITH_PARTS:
        return None
    return [
        {"name": name, "replicas": count}
        | ({"replicaRequirements": needs} if (needs := requirements_of(pod_spec)) else {})
        for name, count, pod_spec in third_party.parts_of(kind, template)
    ]


def requirements_of(pod_spec: Object) -> Object | None:
    """Return what one pod needs of a cluster, as bindings write it; None when that is nothing."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    asked_of_node = {
        "hardNodeAffinity": find_at(pod_spec, "affinity", "nodeAffinity", required),
        "nodeSelector": pod_spec.get("nodeSelector"),
        "tolerations": pod_spec.get("tolerations"),
    }
    complete = {**pod_spec}
    for field in ("containers", "initContainers"):
        containers: list[Object] = pod_spec.get(field) or []
        complete[field] = [_with_requests(container) for container in containers]
    taken = effective(complete, "requests")
    # What the pod's runtime adds is taken as well.
    overhead: dict[str, str] = pod_spec.get("overhead") or {}
    for name, text in overhead.items():
        taken[name] = str(parse_quantity(taken.get(name, "0")) + parse_quantity(text))
    requirements = {
        "nodeClaim": {key: value for key, value in asked_of_node.items() if value},
        "resourceRequest": {
            name: text for name, text in taken.items() if parse_quantity(text).nanos > 0
        },
    }
    found = {key: value for key, value in requirements.items() if value}
    # Quotas may be for some classes alone. It is no requirement by itself: any cluster does.
    if found and pod_spec.get("priorityClassName"):
        found["priorityClassName"] = pod_spec["priorityClassName"]
    return found or None


def _with_requests(container: Object) -> Object:
    """Return a container with a request where there is only a limit, as members set it."""
    resources: Object = container.get("resources") or {}
    limits: Object = resources.get("limits") or {}
    # In kinds of people's own quantities may be numbers.
    asked: Object = {**limits, **(resources.get("requests") or {})}
    requests = {name: str(amount) for name, amount in asked.items()}
    return {**container, "resources": {**resources, "requests": requests}}


_FIELDS: Final[Mapping[GroupKind, str]] = {
    DEPLOYMENT: "replicas",
    REPLICA_SET: "replicas",
    STATEFUL_SET: "replicas",
    JOB: "parallelism",
    **third_party.REPLICA_FIELDS,
}
"""Which field of a kind's spec says how many pods run at once."""


def with_replicas(manifest: Object, replicas: int) -> Object:
    """Return the manifest with this many replicas; the same one for kinds that have none."""
    field = _FIELDS.get(kind_of(manifest))
    if field is None or find_at(manifest, "spec", field) == replicas:
        return manifest
    return with_value(manifest, replicas, "spec", field)


def find_completions(manifest: Object) -> int | None:
    """Return how many pods of a Job must succeed; None for other kinds, or when any will do."""
    return find_at(manifest, "spec", "completions") if kind_of(manifest) == JOB else None


def with_completions(manifest: Object, completions: int) -> Object:
    """Return the Job with this many completions."""
    return with_value(manifest, completions, "spec", "completions")


# -- what it needs beside it: configuration, secrets, accounts, volumes ------------------------


_CONFIG_MAP: Final = "ConfigMap"
_SECRET: Final = "Secret"  # noqa: S105 - a kind
_SERVICE_ACCOUNT: Final = "ServiceAccount"
_CLAIM: Final = "PersistentVolumeClaim"

_EVERYWHERE: Final = "default"
"""The account every namespace of every cluster has."""

# Where volume sources name a Secret: Kubernetes has two words for it, and one source its own.
_SECRET_REFERENCES: Final = ("secretRef", "nodePublishSecretRef")
_SOURCES_WITH_SECRETS: Final = (
    "azureFile", "cephfs", "cinder", "csi", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos",
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Dependency:
    """An object that a template needs beside it, by name; or several, by their labels."""

    kind: str
    namespace: str
    name: str
    """Empty when labels select it, and possibly others."""
    api_version: str = "v1"
    selector: str = ""
    """A label selector in JSON, for want of a name."""

    def written(self) -> dict[str, Any]:
        """Return the reference as the annotation of a binding spells it."""
        reference: dict[str, Any] = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
        }
        if self.selector:
            del reference["name"]
            reference["labelSelector"] = msgspec.json.decode(self.selector)
        return reference

    @classmethod
    def read(cls, reference: Object) -> "Dependency":
        """Read a reference, of a script or an annotation; Malformed when it names no object."""
        named = {
            key: reference.get(key) or "" for key in ("apiVersion", "kind", "namespace", "name")
        }
        if not all(isinstance(each, str) for each in named.values()):
            raise Malformed(f"{reference!r:.200} is no reference to an object")
        if not (named["apiVersion"] and named["kind"]):
            raise Malformed(f"{reference!r:.200} has no apiVersion or no kind")
        selector = reference.get("labelSelector")
        if not named["name"] and not isinstance(selector, dict):
            raise Malformed(f"{reference!r:.200} has neither a name nor a labelSelector")
        return cls(
            named["kind"],
            named["namespace"],
            named["name"],
            named["apiVersion"],
            "" if named["name"] else msgspec.json.encode(selector, order="sorted").decode(),
        )


def dependencies_in(template: Object) -> tuple[Dependency, ...]:
    """Return the objects a template needs, each once, in the order of kinds and names."""
    namespace = namespace_of(template)
    found = {
        Dependency(kind, namespace, name)
        for kind, name in _needed_by(template)
        if isinstance(name, str) and name
    }
    if kinds.kind_of(template) == kinds.SERVICE_IMPORT:
        # The Service that stands for the imported one, and whoever answers for it elsewhere.
        derived = f"derived-{name_of(template)}"
        labels = {"matchLabels": {"kubernetes.io/service-name": derived}}
        selector = msgspec.json.encode(labels).decode()
        slices = Dependency("EndpointSlice", namespace, "", "discovery.k8s.io/v1", selector)
        found = {Dependency("Service", namespace, derived), slices}
    return tuple(sorted(found))


def _needed_by(template: Object) -> Iterator[tuple[str, Any]]:
    if kinds.kind_of(template) == kinds.INGRESS:
        for tls in _objects(find_at(template, "spec", "tls")):
            yield _SECRET, tls.get("secretName")
        return
    kind = kinds.kind_of(template)
    yield from third_party.references_in(kind, template)
    if kind in third_party.WITH_PARTS:
        for _, _, part in third_party.parts_of(kind, template):
            yield from _needed_by_pod(part)
    pod_spec = pod_spec_of(template)
    if pod_spec is None:
        return
    made_on_members: frozenset[str] = frozenset()
    if kind in (kinds.STATEFUL_SET, third_party.ADVANCED_STATEFUL_SET):
        # Makes its claims wherever it runs.
        claims = _objects(find_at(template, "spec", "volumeClaimTemplates"))
        made_on_members = frozenset(str(find_at(claim, "metadata", "name")) for claim in claims)
    for kind, name in _needed_by_pod(pod_spec):
        if kind != _CLAIM or name not in made_on_members:
            yield kind, name


def _needed_by_pod(pod_spec: Object) -> Iterator[tuple[str, Any]]:
    account = pod_spec.get("serviceAccountName")
    if account != _EVERYWHERE:
        yield _SERVICE_ACCOUNT, account
    for secret in _objects(pod_spec.get("imagePullSecrets")):
        yield _SECRET, secret.get("name")
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in _objects(pod_spec.get(field)):
            for source in _objects(container.get("envFrom")):
                yield _CONFIG_MAP, find_at(source, "configMapRef", "name")
                yield _SECRET, find_at(source, "secretRef", "name")
            for variable in _objects(container.get("env")):
                yield _CONFIG_MAP, find_at(variable, "valueFrom", "configMapKeyRef", "name")
                yield _SECRET, find_at(variable, "valueFrom", "secretKeyRef", "name")
    for volume in _objects(pod_spec.get("volumes")):
        yield _CONFIG_MAP, find_at(volume, "configMap", "name")
        yield _SECRET, find_at(volume, "secret", "secretName")
        yield _CLAIM, find_at(volume, "persistentVolumeClaim", "claimName")
        yield _SECRET, find_at(volume, "azureFile", "secretName")
        for source in _objects(find_at(volume, "projected", "sources")):
            yield _CONFIG_MAP, find_at(source, "configMap", "name")
            yield _SECRET, find_at(source, "secret", "name")
        for source in _SOURCES_WITH_SECRETS:
            for reference in _SECRET_REFERENCES:
                yield _SECRET, find_at(volume, source, reference, "name")


def _objects(listed: Iterable[Any] | None) -> Iterator[Object]:
    return (cast("Object", each) for each in listed or () if isinstance(each, dict))


# -- what it loses when it leaves the hub, and what a member keeps -----------------------------

# Pruning takes out of a template what the hub wrote into it: what is left is what the user wrote,
# with defaults, and can be created anywhere.
#
# Some fields of a kind are the member's to decide: the address of a Service, the volume of a claim,
# the replicas of a Deployment that an autoscaler looks after. There the member's value wins.


_SERVERS_METADATA: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
_REVISION: Final = "deployment.kubernetes.io/revision"
_ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_ACCOUNT_TOKEN: Final = "kubernetes.io/service-account-token"  # noqa: S105 - a type of Secret
_JOB_UID_LABELS: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
_JOB_LABELS: Final = (*_JOB_UID_LABELS, "job-name", "batch.kubernetes.io/job-name")


def pruned(template: Object) -> Object:
    """Return the template without what belongs to the hub alone."""
    metadata = metadata_of(template)
    kept = {key: value for key, value in metadata.items() if key not in _SERVERS_METADATA}
    bare = {**without_value(template, "status"), "metadata": kept}
    match kind_of(template):
        case kinds.DEPLOYMENT:
            return _without_annotation(bare, _REVISION)
        case kinds.JOB:
            return _prune_job(bare)
        case kinds.SERVICE if find_at(bare, "spec", "clusterIP") != "None":
            # Each cluster gives an address of its own, unless the user asked for none.
            return without_value(without_value(bare, "spec", "clusterIP"), "spec", "clusterIPs")
        case kinds.SERVICE_ACCOUNT if bare.get("secrets") is not None:
            # The tokens that were made for the account here are of no use elsewhere.
            made = f"{name_of(bare)}-token-"
            secrets = cast("list[Object]", bare["secrets"])
            own = [each for each in secrets if not str(each.get("name") or "").startswith(made)]
            return {**bare, "secrets": own} if own else without_value(bare, "secrets")
        case kinds.SECRET if bare.get("type") == _ACCOUNT_TOKEN:
            return without_value(_without_annotation(bare, _ACCOUNT_UID), "data")
        case kinds.CLAIM:
            return _without_annotation(bare, _SELECTED_NODE)
        case kinds.POD:
            # Each cluster mounts a token of its own and has its own numbers for PriorityClasses and
            # RuntimeClasses: it refuses a pod that comes with those of another one.
            for field in ("overhead", "preemptionPolicy", "priority"):
                bare = without_value(bare, "spec", field)
            return without_token_volume(bare)
        case _:
            return bare


def _prune_job(job: Object) -> Object:
    """Take out the selector the hub made: each cluster makes one of the UID the Job has there.

    The hub is what lets finished Jobs expire; a member that did it as well would look as if it had
    lost the Job, and would get it again.
    """
    bare = without_value(job, "spec", "ttlSecondsAfterFinished")
    if find_at(job, "spec", "manualSelector") is True:
        return bare
    bare = _without_keys(bare, _JOB_UID_LABELS, "spec", "selector", "matchLabels")
    if find_at(bare, "spec", "selector") == {}:
        bare = without_value(bare, "spec", "selector")
    return _without_keys(bare, _JOB_LABELS, "spec", "template", "metadata", "labels")


def _without_annotation(manifest: Object, key: str) -> Object:
    if key not in annotations_of(manifest):
        return manifest
    return _without_keys(manifest, (key,), "metadata", "annotations")


def _without_keys(manifest: Object, keys: tuple[str, ...], *path: str) -> Object:
    """Return a copy whose map at the path lacks the keys; an emptied map goes as well."""
    existing: Object | None = find_at(manifest, *path)
    if not existing:
        return manifest
    kept = {key: value for key, value in existing.items() if key not in keys}
    return with_value(manifest, kept, *path) if kept else without_value(manifest, *path)


_REPLICAS: Final[Path] = ("f:spec", "f:replicas")
_AUTOSCALERS: Final = ("kube-controller-manager", "autoscal", "keda")
"""Part of the names of those who scale by themselves; a person who scales by hand is `kubectl`."""
_CONTAINERS: Final = ("initContainers", "containers")


_RETAINED: Final[Mapping[Any, tuple[tuple[str, ...], ...]]] = {
    # The labels by which a Job finds its pods are made for each Job.
    kinds.JOB: (("spec", "selector", "matchLabels"), ("spec", "template", "metadata", "labels")),
    kinds.SERVICE: (("spec", "clusterIP"), ("spec", "healthCheckNodePort")),
    # Where a Pod runs and what was mounted into it is decided on the member.
    kinds.POD: (
        ("spec", "nodeName"),
        ("spec", "overhead"),
        ("spec", "serviceAccountName"),
        ("spec", "volumes"),
    ),
    kinds.CLAIM: (("spec", "volumeName"),),
    kinds.VOLUME: (("spec", "claimRef"),),
    **third_party.SUSPENDED,
}


def retain_words(manifest: Object, live: Object) -> Object:
    """Return the manifest with the labels and annotations that are the member's own."""
    return with_metadata(
        manifest,
        labels=_retained_words(
            labels_of(manifest), labels_of(live), _listed(live, stamps.MANAGED_LABELS_LIST)
        )
        or None,
        annotations=_retained_words(
            annotations_of(manifest),
            annotations_of(live),
            _listed(live, stamps.MANAGED_ANNOTATIONS_LIST),
        )
        or None,
    )


def retain(manifest: Object, live: Object) -> Object:
    """Return the manifest with what the member keeps in it."""
    kept = retain_words(manifest, live)
    kind = kind_of(manifest)
    paths = _RETAINED.get(kind, ())
    match kind:
        case kinds.DEPLOYMENT | kinds.REPLICA_SET | kinds.STATEFUL_SET:
            is_asked = labels_of(kept).get(stamps.RETAIN_REPLICAS) == "true"
            if is_asked or is_autoscaled(live):
                paths = (("spec", "replicas"),)
        case kinds.SECRET if live.get("type") == _ACCOUNT_TOKEN:
            paths = (("data",),)
        case kinds.SERVICE_ACCOUNT:
            # Tokens and pull secrets the member gave an account, beside the manifest's own.
            for field in ("secrets", "imagePullSecrets"):
                wanted = cast("list[Object]", manifest.get(field) or [])
                own = [each for each in live.get(field) or () if each not in wanted]
                kept = {**kept, field: [*wanted, *own]} if own else kept
        case kinds.POD:
            kept = _with_mounts(kept, live)
        case _:
            pass
    for path in paths:
        value = find_at(live, *path)
        kept = kept if value is None else with_value(kept, value, *path)
    return kept


def _with_mounts(manifest: Object, live: Object) -> Object:
    for field in _CONTAINERS:
        containers: list[Object] = find_at(manifest, "spec", field) or []
        existing: list[Object] = find_at(live, "spec", field) or []
        mounts = {str(each.get("name")): each.get("volumeMounts") for each in existing}
        mounted = [
            each
            if mounts.get(str(each.get("name"))) is None
            else {**each, "volumeMounts": mounts[str(each.get("name"))]}
            for each in containers
        ]
        manifest = with_value(manifest, mounted, "spec", field) if mounted else manifest
    return manifest


def is_autoscaled(live: Object) -> bool:
    """Whether an autoscaler on the member set the replicas an object has.

    Autoscalers write through the `scale` subresource, and the member notes who did.
    """
    return any(
        entry.subresource == "scale"
        and _REPLICAS in entry.fields
        and any(word in entry.manager for word in _AUTOSCALERS)
        for entry in read_entries(raw_entries(live)).values()
    )


def _retained_words(
    wanted: Mapping[str, str], live: Mapping[str, str], managed: frozenset[str]
) -> dict[str, str]:
    """Return labels or annotations: the member's own stay, what we once set and dropped goes."""
    own = {key: value for key, value in live.items() if key in wanted or key not in managed}
    return {**own, **wanted}


def _listed(live: Object, annotation: str) -> frozenset[str]:
    """Return the keys we noted on the object as ours when we last wrote it."""
    return frozenset(annotations_of(live).get(annotation, "").split(","))
