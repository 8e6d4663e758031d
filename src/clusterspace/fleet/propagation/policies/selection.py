"""Which policy claims a template, when several could.

    namespaced before cluster-wide
        then the higher priority
            then by name before by labels before everything
                then the name that comes first in the alphabet

Policies are read once, when they change, and kept by the kinds they select: a template is
compared with the few that could select it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.apis import stamps
from clusterspace.apis.policies import (
    CLUSTER_PROPAGATION_POLICIES,
    LAZY,
    PROPAGATION_POLICIES,
    Precision,
    ResourceSelector,
    best_precision,
    selectors_of,
)
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.propagation.bindings import Claim
from clusterspace.kube.objects import (
    Object,
    find_at,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
)

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
    problem: str = ""
    """Why its selectors cannot be read: then it keeps what it has and claims nothing more."""

    @property
    def key(self) -> str:
        """The policy's key among policies of both kinds."""
        return self.claim.key

    @property
    def place(self) -> ResourcePath:
        """Where the policy is."""
        return policy_place(self.claim)

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
        problem=problem,
    )


def policy_place(claim: Claim) -> ResourcePath:
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

        Without one it is the best there is, and None when no policy means the template.
        """
        followed = None if claim is None else self.find(claim)
        if followed is not None and followed.keeps(template):
            return followed
        own = self._selecting(template, namespace_of(template)) if namespace_of(template) else ()
        return choose_policy(template, own) or choose_policy(template, self._selecting(template))

    def _selecting(self, template: Object, namespace: str = "") -> Iterable[Policy]:
        kind = (namespace, str(template.get("apiVersion")), str(template.get("kind")))
        return self._by_kind[kind].values() if kind in self._by_kind else ()


def _kinds_of(policy: Policy) -> set[_Kind]:
    namespace = policy.claim.namespace
    return {(namespace, each.api_version, each.kind) for each in policy.selectors}
