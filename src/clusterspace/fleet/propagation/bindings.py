"""Which policy a template follows, and the one binding it has: its claim, its owner, its clusters.

A claim is written on template and binding as labels and annotations. It is sticky: a better policy
that comes later does not take over, unless it says that it preempts. It ends when its policy goes
or no longer selects the template; then the marks go, and everything placed stays placed.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

import msgspec

from clusterspace.apis import stamps
from clusterspace.apis.interpreter.templates import Dependency
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICIES,
    FAILBACK,
    LAZY,
    PROPAGATION_POLICIES,
    Precision,
    ResourceSelector,
    best_precision,
    selectors_of,
)
from clusterspace.apis.works import (
    BINDING_API_VERSION,
    CLUSTER_RESOURCE_BINDING,
    RESOURCE_BINDING,
    TargetCluster,
    clusters_of,
    controller_uid_of,
    name_for,
    reference_to,
    requirers_of,
    resource_for,
    template_of,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Malformed, MalformedSelector
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
    with_metadata,
)

WORKS_WRITTEN: Final = "WorksWritten"
"""Condition of a binding: False while a cluster lacks its Work, and absent otherwise."""

OVERRIDE_FAILED: Final = "ApplyOverridePolicyFailed"
"""Its reason when what overrides ask for cannot be done."""

_LABELS: Final = frozenset({stamps.POLICY_ID, stamps.CLUSTER_POLICY_ID})
_ANNOTATIONS: Final = frozenset(
    {stamps.POLICY_NAMESPACE, stamps.POLICY_NAME, stamps.CLUSTER_POLICY_NAME}
)
PURGED_AT_ONCE: Final = frozenset({"Directly", "Immediately"})
"""Modes of an eviction in which nothing is waited for."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Which policy is followed; one without a namespace is a ClusterPropagationPolicy."""

    policy_id: str
    name: str
    namespace: str = ""

    @property
    def key(self) -> str:
        """The policy's key among policies of both kinds: only namespaced ones have a slash."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def claim_of(kube_object: Object) -> Claim | None:
    """Read the marks of a template or binding; None when they are not all there."""
    labels, annotations = labels_of(kube_object), annotations_of(kube_object)
    policy_id = labels.get(stamps.POLICY_ID)
    namespace = annotations.get(stamps.POLICY_NAMESPACE)
    name = annotations.get(stamps.POLICY_NAME)
    if policy_id and namespace and name:
        return Claim(policy_id, name, namespace)
    policy_id = labels.get(stamps.CLUSTER_POLICY_ID)
    name = annotations.get(stamps.CLUSTER_POLICY_NAME)
    return Claim(policy_id, name) if policy_id and name else None


def with_claim(kube_object: Object, claim: Claim) -> Object:
    """Return a template or binding with the marks of this claim and of no other."""
    if claim.namespace:
        labels = {stamps.POLICY_ID: claim.policy_id}
        annotations = {stamps.POLICY_NAMESPACE: claim.namespace, stamps.POLICY_NAME: claim.name}
    else:
        labels = {stamps.CLUSTER_POLICY_ID: claim.policy_id}
        annotations = {stamps.CLUSTER_POLICY_NAME: claim.name}
    return with_metadata(
        kube_object,
        labels={**_unmarked_labels(kube_object), **labels},
        annotations={**_unmarked_annotations(kube_object), **annotations},
    )


def without_claim(kube_object: Object) -> Object:
    """Return a template or binding without any marks."""
    return with_metadata(
        kube_object,
        labels=_unmarked_labels(kube_object) or None,
        annotations=_unmarked_annotations(kube_object) or None,
    )


def is_marked(kube_object: Object) -> bool:
    """Whether there is any mark, be it half of a claim."""
    labels, annotations = labels_of(kube_object), annotations_of(kube_object)
    return not (_LABELS.isdisjoint(labels) and _ANNOTATIONS.isdisjoint(annotations))


def by_claim(kube_object: Object) -> Iterable[str]:
    """Index objects by the key of the policy they follow."""
    claim = claim_of(kube_object)
    return () if claim is None else (claim.key,)


def permanent_id(random: Random) -> str:
    """Return a new ID, such as policies and bindings keep for life."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def _unmarked_labels(kube_object: Object) -> Mapping[str, str]:
    return {key: value for key, value in labels_of(kube_object).items() if key not in _LABELS}


def _unmarked_annotations(kube_object: Object) -> Mapping[str, str]:
    annotations = annotations_of(kube_object)
    return {key: value for key, value in annotations.items() if key not in _ANNOTATIONS}


def binding_path(template: Object) -> ResourcePath:
    """Return where the binding of a template is."""
    namespace = namespace_of(template)
    return ResourcePath(resource_for(namespace), namespace, name_for(template))


def is_own(binding: Object, template: Object) -> bool:
    """Whether a binding is this template's, and not one of the same name that is gone or going.

    Nor one that somebody wrote for another object under the name this template's has: what a
    binding is about never changes.
    """
    about = template_of(binding)
    group, kind = kind_of(template).group, kind_of(template).kind
    is_about = about.subject == (group, kind, namespace_of(template), name_of(template))
    is_free = controller_uid_of(binding) in ("", uid_of(template))
    return is_free and (is_about or not about.name)


def new_binding(template: Object, binding_id: str) -> Object:
    """Return a binding of a template that follows no policy yet."""
    is_namespaced = bool(namespace_of(template))
    label = stamps.BINDING_ID if is_namespaced else stamps.CLUSTER_BINDING_ID
    path = binding_path(template)
    metadata = {"name": path.name, "namespace": path.namespace, "labels": {label: binding_id}}
    binding = {
        "apiVersion": BINDING_API_VERSION,
        "kind": RESOURCE_BINDING if is_namespaced else CLUSTER_RESOURCE_BINDING,
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"resource": reference_to(template)},
    }
    return with_owner(binding, template)


def with_owner(binding: Object, template: Object) -> Object:
    """Return the binding, owned by its template and held until its Works are gone."""
    is_namespaced = bool(namespace_of(template))
    finalizer = stamps.BINDING_FINALIZER if is_namespaced else stamps.CLUSTER_BINDING_FINALIZER
    finalizers: list[str] = find_at(binding, "metadata", "finalizers") or []
    owner = {
        "apiVersion": template.get("apiVersion"),
        "kind": template.get("kind"),
        "name": name_of(template),
        "uid": uid_of(template),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return with_metadata(
        binding,
        finalizers=finalizers if finalizer in finalizers else [*finalizers, finalizer],
        ownerReferences=[owner],
    )


def targets_of(binding: Object) -> tuple[TargetCluster, ...]:
    """Return the clusters that are to have the object.

    They are those it was scheduled to, and those where something that needs it was scheduled to.
    The latter say nothing about replicas: theirs are of what needs it.
    """
    scheduled = {each.name: each for each in clusters_of(binding)}
    required = {
        each.name: TargetCluster(each.name)
        for requirer in requirers_of(binding)
        for each in requirer.clusters
    }
    return tuple(
        {**scheduled, **{k: v for k, v in required.items() if k not in scheduled}}.values()
    )


def leaving_clusters(binding: Object) -> frozenset[str]:
    """Return the clusters that the object leaves gracefully: it stays there until it may go."""
    tasks: list[Object] = find_at(binding, "spec", "gracefulEvictionTasks") or []
    return frozenset(
        str(each.get("fromCluster"))
        for each in tasks
        if each.get("purgeMode") not in PURGED_AT_ONCE
    )


def kept_clusters(binding: Object) -> frozenset[str]:
    """Return the clusters whose Works stay: the targets, and those the object leaves gracefully."""
    return leaving_clusters(binding) | {target.name for target in targets_of(binding)}


# -- which policy claims a template, when several could ----------------------------------------

#     namespaced before cluster-wide
#         then the higher priority
#             then by name before by labels before everything
#                 then the name that comes first in the alphabet
#
# Policies are read once, when they change, and kept by the kinds they select: a template is
# compared with the few that could select it.


_ID_LABELS: Final = {True: stamps.POLICY_ID, False: stamps.CLUSTER_POLICY_ID}

_Kind: TypeAlias = tuple[str, str, str]
"""Namespace of the policy (empty for cluster-wide ones), apiVersion and kind it selects."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A PropagationPolicy, or a ClusterPropagationPolicy when it has no namespace."""

    claim: Claim
    spec: Object
    selectors: tuple[ResourceSelector, ...] = ()
    priority: int = 0
    is_leaving: bool = False
    failback: str = ""
    """After how many seconds its templates go back to an earlier group; empty for never."""
    problem: str = ""
    """Why its selectors cannot be read: then it keeps what it has and claims nothing more."""

    @property
    def key(self) -> str:
        """The policy's key among policies of both kinds."""
        return self.claim.key

    @property
    def path(self) -> ResourcePath:
        """Where the policy is."""
        return policy_path(self.claim)

    @property
    def is_lazy(self) -> bool:
        """Whether a change of the policy waits for the next change of each template."""
        return self.spec.get("activationPreference") == LAZY

    @property
    def awaited_overrides(self) -> tuple[str, ...]:
        """The override policies that must be there before the policy claims anything."""
        return tuple(self.spec.get("dependentOverrides") or ())

    def precision(self, template: Object) -> Precision:
        """Tell how precisely the policy means a template, if it does."""
        namespace = self.claim.namespace
        if namespace and namespace != namespace_of(template):
            return Precision.NOT_MEANT
        return best_precision(self.selectors, template)

    def may_claim(self, template: Object) -> bool:
        """Whether the policy would claim this template if it were free."""
        return not self.is_leaving and self.precision(template) is not Precision.NOT_MEANT

    def preempts(self, followed: "Policy", template: Object) -> bool:
        """Whether the policy takes a template away from the one that it follows.

        One of the namespace does from any cluster-wide one; otherwise the priority decides.
        """
        if self.spec.get("preemption") != "Always" or not self.may_claim(template):
            return False
        is_own, was_own = bool(self.claim.namespace), bool(followed.claim.namespace)
        if is_own != was_own:
            return is_own
        return self.priority > followed.priority

    def keeps(self, template: Object) -> bool:
        """Whether a template that follows the policy goes on doing so."""
        if self.problem and not self.is_leaving:
            return self.claim.namespace in ("", namespace_of(template))
        return self.may_claim(template)


def read_policy(policy: Object) -> Policy:
    """Read a policy of either kind."""
    namespace = namespace_of(policy)
    policy_id = labels_of(policy).get(_ID_LABELS[bool(namespace)], "")
    try:
        selectors, problem = selectors_of(policy), ""
    except MalformedSelector as error:
        selectors, problem = (), error.message
    return Policy(
        claim=Claim(policy_id, name_of(policy), namespace),
        spec=find_at(policy, "spec") or {},
        selectors=selectors,
        priority=int(find_at(policy, "spec", "priority") or 0),
        is_leaving=bool(metadata_of(policy).get("deletionTimestamp")),
        failback=annotations_of(policy).get(FAILBACK, ""),
        problem=problem,
    )


def policy_path(claim: Claim) -> ResourcePath:
    """Return where the policy of a claim is."""
    resource = PROPAGATION_POLICIES if claim.namespace else CLUSTER_PROPAGATION_POLICIES
    return ResourcePath(resource, claim.namespace, claim.name)


def choose_policy(template: Object, policies: Iterable[Policy]) -> Policy | None:
    """Return the policy of one kind that claims a free template, or None."""
    able = [policy for policy in policies if policy.may_claim(template)]
    return min(
        able,
        key=lambda policy: (-policy.priority, -policy.precision(template), policy.claim.name),
        default=None,
    )


class PolicyIndex:
    """All policies there are, by what they select."""

    def __init__(self) -> None:
        self._policies: dict[str, Policy] = {}
        self._by_kind: defaultdict[_Kind, dict[str, Policy]] = defaultdict(dict)

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._policies.values())

    def put(self, policy: Policy) -> None:
        """Add a policy or replace it."""
        self.remove(policy.key)
        self._policies[policy.key] = policy
        for kind in _kinds_of(policy):
            self._by_kind[kind][policy.key] = policy

    def remove(self, key: str) -> None:
        """Forget a policy, if it is known."""
        known = self._policies.pop(key, None)
        if known is None:
            return
        for kind in _kinds_of(known):
            self._by_kind[kind].pop(key, None)
            if not self._by_kind[kind]:
                del self._by_kind[kind]

    def find(self, claim: Claim) -> Policy | None:
        """Return the policy of a claim, by its name: one made anew goes on where it was."""
        return self._policies.get(claim.key)

    def choose(self, template: Object, claim: Claim | None) -> Policy | None:
        """Return the policy a template is to follow: the one it follows, as long as that keeps it.

        Unless another preempts that one. Without one it is the best there is, and None when no
        policy means the template.
        """
        followed = None if claim is None else self.find(claim)
        own = self._selecting(template, namespace_of(template)) if namespace_of(template) else ()
        able, cluster_wide = own, self._selecting(template)
        if followed is not None and followed.keeps(template):
            able = [each for each in own if each.preempts(followed, template)]
            cluster_wide = [each for each in cluster_wide if each.preempts(followed, template)]
        else:
            followed = None
        return choose_policy(template, able) or choose_policy(template, cluster_wide) or followed

    def _selecting(self, template: Object, namespace: str = "") -> Iterable[Policy]:
        kind = (namespace, str(template.get("apiVersion")), str(template.get("kind")))
        return self._by_kind[kind].values() if kind in self._by_kind else ()


def _kinds_of(policy: Policy) -> set[_Kind]:
    namespace = policy.claim.namespace
    return {(namespace, each.api_version, each.kind) for each in policy.selectors}


def needed_by(parent: Object) -> tuple[Dependency, ...]:
    """Read what a parent says it needs; what cannot be read counts as nothing."""
    text = annotations_of(parent).get(stamps.BINDING_DEPENDENCIES) or "[]"
    try:
        listed = msgspec.json.decode(text.encode(), type=list[dict[str, Any]])
    except msgspec.DecodeError:
        return ()  # our next look at the parent writes it anew
    found: list[Dependency] = []
    for each in listed:
        with suppress(Malformed):
            found.append(Dependency.read(each))
    return tuple(found)


def is_needed_by(binding: Object, parent: Object) -> bool:
    """Whether a parent needs what a binding carries, and not the binding alone says so.

    Whoever may write bindings in a namespace writes into them who requires them. In another
    namespace than theirs the parent has to name the object, too.
    """
    about, namespace = template_of(binding), namespace_of(parent)
    if about.namespace == namespace_of(binding) == namespace:
        return True
    return any(
        (each.kind, each.namespace) == (about.kind, about.namespace)
        and (each.selector or each.name == about.name)
        for each in needed_by(parent)
    )
