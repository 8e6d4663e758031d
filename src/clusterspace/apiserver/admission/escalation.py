"""Nobody grants what they do not hold: the check on roles and on bindings.

A user who may write roles could otherwise write one that allows everything, and bind it. The
verb `escalate` on a role and the verb `bind` on the role a binding refers to lift the check.
https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from clusterspace.apis import envelopes, fleet_placements, works
from clusterspace.apis.clusters import WORKS
from clusterspace.apis.overrides import grants_rights
from clusterspace.apiserver.access.authorizer import HubAuthorizer, resource_attributes
from clusterspace.apiserver.access.components import carries_for_others, only_marks
from clusterspace.apiserver.access.grants import NamespacedName, RoleCache, read_role_reference
from clusterspace.apiserver.access.rbac import (
    EVERYTHING,
    RBAC_GROUP,
    Rule,
    TooManyPermissions,
    missing_atoms,
    read_rules,
)
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.errors import Forbidden, NotFound
from clusterspace.kube import statuses
from clusterspace.kube.causes import quoted
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of, namespace_of
from clusterspace.kube.resources import ResourceInfo

_ROLES: Final = frozenset({"roles", "clusterroles"})
_BINDINGS: Final = frozenset({"rolebindings", "clusterrolebindings"})
_AGGREGATION: Final = "aggregationRule"
_TOO_MANY: Final = (
    "it grants more permissions than can be compared with those of its author: "
    "write several roles with fewer verbs, groups, resources and names in a rule"
)
_NO_AGGREGATION: Final = "must have cluster-admin privileges to use the aggregationRule"

_FULL_AUTHORITY: Final = (
    Rule((EVERYTHING,), (EVERYTHING,), (EVERYTHING,)),
    Rule((EVERYTHING,), paths=(EVERYTHING,)),
)

_LISTED_TEXTS: Final = 60
"""A rule of 20 verbs, groups and resources each is 8,000 permissions, listed in a few ms."""
_QUICK_STEPS: Final = 50_000
"""Comparisons of a text with a rule: 5 to 10 ms."""

_COLLECTED: Final = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
"""What garbage collection changes of any object."""


_CARRIERS: Final = {
    (WORKS.group, works.WORK): ("spec", "workload", "manifests"),
    (fleet_placements.GROUP, "Work"): ("spec", "workload", "manifests"),
    **{
        (fleet_placements.GROUP, each.resource_snapshot): ("spec", "selectedResources")
        for each in fleet_placements.SCOPES
    },
    **{(each.group, each.kind): () for each in envelopes.KINDS},
}
"""Kinds whose objects hold manifests of others, and where."""


@dataclass(frozen=True, slots=True)
class RoleWrite:
    """A write of a role or binding: what it is about, and what it replaces."""

    user: User
    resource: ResourceInfo
    new: Object
    old: Object | None

    @property
    def namespace(self) -> str:
        """Where it grants; a manifest may name a namespace for a kind that has none."""
        return namespace_of(self.new) if self.resource.namespaced else ""


class EscalationGuard(Plugin):
    """Refuses roles and bindings that grant more than their author holds.

    Also those that are to be made on a member: in a Work, or in the state of an object that a
    placement wrote down. What our controllers put there was checked when somebody wrote it; other
    controllers pass by the verbs `escalate` and `bind`, as everybody does.
    """

    def __init__(self, authorizer: HubAuthorizer, role_cache: RoleCache) -> None:
        self._authorizer = authorizer
        self._role_cache = role_cache

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as it is, or refuse it."""
        info, user = admission.served.info, admission.user
        found = self.find_comparison(user, info, admission.new, admission.old)
        if found is not None:
            await _compare(admission, [found])
        is_carrier = (info.group, info.kind) in _CARRIERS and not admission.subresource
        if not is_carrier or carries_for_others(user):
            return admission.new
        before = {_subject(each): each for each in _carried_roles(admission, admission.old or {})}
        comparisons: list[Comparison] = []
        try:
            for role in _carried_roles(admission, admission.new):
                served = hub.catalog.find_kind(RBAC_GROUP, str(role.get("kind")))
                if served is not None:
                    old = before.get(_subject(role))
                    found = self.find_comparison(user, served.info, role, old)
                    comparisons += () if found is None else (found,)
            await _compare(admission, comparisons)
        except (Forbidden, NotFound) as error:
            # What a role that only the member has would grant is not known here.
            why = f"a manifest grants rights: {error.message}"
            raise statuses.forbidden(info.group_resource, name_of(admission.new), why) from error
        return admission.new

    def find_comparison(
        self, user: User, resource: ResourceInfo, new: Object, old: Object | None = None
    ) -> "Comparison | None":
        """Return the comparison a write needs; None when it grants nothing to compare.

        Resources that grant nothing pass; so does a binding to a role that the user may `bind`.
        A binding to a role that is not there is NotFound: what it will grant is not known.
        """
        is_role, is_binding = resource.plural in _ROLES, resource.plural in _BINDINGS
        if resource.group != RBAC_GROUP or not (is_role or is_binding) or MASTERS in user.groups:
            return None
        if old is not None:
            grants_the_same = _without_collected(new) == _without_collected(old)
            if grants_the_same or only_marks(user, new, old):
                return None
        write = RoleWrite(user, resource, new, old)
        if is_binding:
            role = read_role_reference(write.namespace, new)
            if self._may(write, "bind", role):
                return None
            rules = self._role_cache.grants.find_role(role)
            if rules is None:
                raise statuses.not_found(resource.group_resource, role.name)
            return Comparison(write, self._owned(write), bound=rules)
        # A URL that creates names nothing, so neither does the right to escalate by creating.
        name = name_of(new) if old is not None else ""
        if self._may(write, "escalate", NamespacedName(write.namespace, name)):
            return None
        gathers = new.get(_AGGREGATION) or (old or {}).get(_AGGREGATION)
        everywhere = self._authorizer.rules_of(user, "") if gathers else None
        return Comparison(write, self._owned(write), everywhere=everywhere)

    def _may(self, write: RoleWrite, verb: str, role: NamespacedName) -> bool:
        asked = resource_attributes(
            verb,
            RBAC_GROUP,
            "roles" if role.namespace else "clusterroles",
            version=write.resource.version,
            namespace=write.namespace,
            name=role.name,
        )
        return self._authorizer.decide_now(write.user, asked).allowed

    def _owned(self, write: RoleWrite) -> tuple[Rule, ...]:
        return self._authorizer.lendable_rules_of(write.user, write.namespace)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a write grants, and what its author holds: values, to be compared on any thread."""

    write: RoleWrite
    owned: tuple[Rule, ...]
    bound: tuple[Rule, ...] | None = None
    """The rules a binding binds; those of a role are read when they are compared."""
    everywhere: tuple[Rule, ...] | None = None
    """What the author holds at the cluster scope, if the role takes the rules of others too."""

    @property
    def is_long(self) -> bool:
        """Whether comparing may take longer than the event loop should wait."""
        if self.bound is not None:
            size = sum(rule.size for rule in self.bound)
        else:
            # Counted without reading them: that takes time by their size, too.
            rules: Any = self.write.new.get("rules")
            size = sum(
                len(cast("list[Any]", texts))
                for rule in (cast("list[Any]", rules) if isinstance(rules, list) else ())
                if isinstance(rule, dict)
                for texts in cast("Object", rule).values()
                if isinstance(texts, list)
            )
        return size > _LISTED_TEXTS or size * len(self.owned) > _QUICK_STEPS

    def require_granted(self) -> None:
        """Raise Forbidden when the author does not hold all that the write grants."""
        write = self.write
        requested = read_rules(write.new.get("rules")) if self.bound is None else self.bound
        try:
            missing = tuple(missing_atoms(requested, self.owned))
        except TooManyPermissions as error:
            raise _refusal(write, _TOO_MANY) from error
        if missing:
            groups = " ".join(map(quoted, write.user.groups))
            why = (
                f"user {quoted(write.user.name)} (groups=[{groups}]) "
                "is attempting to grant RBAC permissions not currently held:"
            )
            raise _refusal(write, "\n".join((why, *sorted(_missing_lines(missing)))))
        # It gathers whatever others write later, so only full authority covers it.
        everywhere = self.everywhere
        if everywhere is not None and any(missing_atoms(_FULL_AUTHORITY, everywhere)):
            raise _refusal(write, _NO_AGGREGATION)


async def _compare(admission: Admission, comparisons: list[Comparison]) -> None:
    """Raise Forbidden for the first comparison that falls short; long ones beside the loop."""

    # The comparisons are values: rights that change while a thread is at work count for the next
    # write, and nothing here reads the role cache from anywhere but the event loop.
    def require_all() -> None:
        for comparison in comparisons:
            comparison.require_granted()

    if any(each.is_long for each in comparisons):
        await off_loop(admission.user.name, require_all)
    else:
        await admission.run(require_all)


def carries_rights(admission: Admission) -> bool:
    """Whether the object holds manifests that grant rights on a member, in somebody's own name."""
    info = admission.served.info
    is_carrier = (info.group, info.kind) in _CARRIERS and not admission.subresource
    if not is_carrier or carries_for_others(admission.user):
        return False
    return any(True for _ in _carried_roles(admission, admission.new))


def _carried_roles(admission: Admission, carrier: Object) -> Iterator[Object]:
    """Yield what is RBAC's among the manifests of a carrier; the schema has not been asked yet."""
    info = admission.served.info
    path = _CARRIERS[info.group, info.kind]
    manifests: Any = find_at(carrier, *path) if path else [carrier]
    for each in cast("list[Any]", manifests) if isinstance(manifests, list) else ():
        for manifest in envelopes.opened(cast("Object", each)) if isinstance(each, dict) else ():
            if grants_rights(str(manifest.get("apiVersion"))):
                yield manifest


def _subject(role: Object) -> tuple[str, str, str]:
    return str(role.get("kind")), namespace_of(role), name_of(role)


def _without_collected(kube_object: Object) -> Object:
    """Return an object without what garbage collection touches: that grants nothing."""
    metadata = {k: v for k, v in metadata_of(kube_object).items() if k not in _COLLECTED}
    return {**kube_object, "metadata": metadata}


def _refusal(write: RoleWrite, why: str) -> Forbidden:
    return statuses.forbidden(write.resource.group_resource, name_of(write.new), why)


def _missing_lines(atoms: Iterable[Rule]) -> Iterator[str]:
    """Yield the missing rules as Kubernetes shows them: verbs on one resource in one line."""
    rules: list[Rule] = []
    together: dict[Rule, dict[str, None]] = {}
    for atom in atoms:
        if atom.paths:
            rules.append(atom)
        else:
            key = Rule((), atom.groups, atom.resources, atom.names)
            together.setdefault(key, {}).update(dict.fromkeys(atom.verbs))
    rules += (replace(key, verbs=tuple(verbs)) for key, verbs in together.items())
    for rule in rules:
        fields = (
            ("APIGroups", rule.groups),
            ("Resources", rule.resources),
            ("NonResourceURLs", rule.paths),
            ("ResourceNames", rule.names),
            ("Verbs", rule.verbs),
        )
        shown = (f"{name}:[{' '.join(map(quoted, texts))}]" for name, texts in fields if texts)
        yield "{" + ", ".join(shown) + "}"
