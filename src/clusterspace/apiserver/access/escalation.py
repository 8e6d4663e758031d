"""Nobody grants what they do not hold: the check on roles and on bindings.

A user who may write roles could otherwise write one that allows everything, and bind it. The
verb `escalate` on a role and the verb `bind` on the role a binding refers to lift the check.
https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.access.coverage import TooManyPermissions, missing_atoms
from clusterspace.apiserver.access.grants import Place
from clusterspace.apiserver.access.parts import only_marks
from clusterspace.apiserver.access.rbac import EVERYTHING, Rule, read_rules
from clusterspace.apiserver.access.snapshot import RBAC_GROUP, Snapshot, read_role_reference
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import MASTERS, User
from clusterspace.errors import Forbidden
from clusterspace.kube import statuses
from clusterspace.kube.field_paths import quoted
from clusterspace.kube.objects import Object, metadata_of, name_of, namespace_of
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
"""Comparisons of a text with a held rule: 5 to 10 ms."""

_COLLECTED: Final = ("ownerReferences", "finalizers")
"""What garbage collection changes of any object; it grants nothing."""


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

    def attributes(self, verb: str, plural: str, name: str) -> RequestInfo:
        """Return the request the user would need to be allowed."""
        return RequestInfo(
            method="",
            path="",
            verb=verb,
            is_resource=True,
            group=RBAC_GROUP,
            version=self.resource.version,
            resource=plural,
            namespace=self.namespace,
            name=name,
        )


class EscalationCheck:
    """Compares what a write grants with what its author holds."""

    def __init__(self, authorizer: HubAuthorizer, snapshot: Snapshot) -> None:
        self._authorizer = authorizer
        self._snapshot = snapshot

    def check(
        self, user: User, resource: ResourceInfo, new: Object, old: Object | None = None
    ) -> None:
        """Raise Forbidden when the write would grant more than the user holds.

        Resources that grant nothing pass; so does a binding to a role that the user may `bind`.
        A binding to a role that is not there is NotFound: what it will grant is not known.
        """
        comparison = self.find_comparison(user, resource, new, old)
        if comparison is not None:
            comparison.require_held()

    def find_comparison(
        self, user: User, resource: ResourceInfo, new: Object, old: Object | None = None
    ) -> "Comparison | None":
        """Return what has to be compared; None when the write grants nothing to compare."""
        is_role, is_binding = resource.plural in _ROLES, resource.plural in _BINDINGS
        if resource.group != RBAC_GROUP or not (is_role or is_binding) or MASTERS in user.groups:
            return None
        if old is not None and (_grants_the_same(new, old) or only_marks(user, new, old)):
            return None
        write = RoleWrite(user, resource, new, old)
        return self._of_role(write) if is_role else self._of_binding(write)

    def _of_role(self, write: RoleWrite) -> "Comparison | None":
        # A URL that creates names nothing, so neither does the right to escalate by creating.
        name = name_of(write.new) if write.old is not None else ""
        if self._may(write, "escalate", Place(write.namespace, name)):
            return None
        gathers = write.new.get(_AGGREGATION) or (write.old or {}).get(_AGGREGATION)
        everywhere = self._authorizer.rules_of(write.user, "") if gathers else None
        return Comparison(write, self._held(write), everywhere=everywhere)

    def _of_binding(self, write: RoleWrite) -> "Comparison | None":
        role = read_role_reference(write.namespace, write.new)
        if self._may(write, "bind", role):
            return None
        rules = self._snapshot.grants.find_role(role)
        if rules is None:
            raise statuses.not_found(write.resource.group_resource, role.name)
        return Comparison(write, self._held(write), bound=rules)

    def _may(self, write: RoleWrite, verb: str, role: Place) -> bool:
        plural = "roles" if role.namespace else "clusterroles"
        info = write.attributes(verb, plural, role.name)
        return self._authorizer.decide_now(write.user, info).allowed

    def _held(self, write: RoleWrite) -> tuple[Rule, ...]:
        return self._authorizer.lendable_rules_of(write.user, write.namespace)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a write grants, and what its author holds: values, to be compared anywhere."""

    write: RoleWrite
    held: tuple[Rule, ...]
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
            size = _texts_in(self.write.new.get("rules"))
        return size > _LISTED_TEXTS or size * len(self.held) > _QUICK_STEPS

    def require_held(self) -> None:
        """Raise Forbidden when the author does not hold all that the write grants."""
        wanted = read_rules(self.write.new.get("rules")) if self.bound is None else self.bound
        try:
            missing = tuple(missing_atoms(wanted, self.held))
        except TooManyPermissions as error:
            raise _refusal(self.write, _TOO_MANY) from error
        if missing:
            raise _refusal(self.write, _missing_text(self.write.user, missing))
        # It gathers whatever others write later, so only full authority covers it.
        everywhere = self.everywhere
        if everywhere is not None and any(missing_atoms(_FULL_AUTHORITY, everywhere)):
            raise _refusal(self.write, _NO_AGGREGATION)


def _texts_in(rules: Any) -> int:
    """Return about how many texts some rules are made of, without reading them."""
    if not isinstance(rules, list):
        return 0
    count = 0
    for rule in cast("list[Any]", rules):
        if isinstance(rule, dict):
            held = cast("Object", rule).values()
            count += sum(len(cast("list[Any]", each)) for each in held if isinstance(each, list))
    return count


def _grants_the_same(new: Object, old: Object) -> bool:
    """Whether a write touches nothing but what garbage collection touches."""
    return _without_collected(new) == _without_collected(old)


def _without_collected(kube_object: Object) -> Object:
    left_out = (*_COLLECTED, "managedFields", "resourceVersion")
    metadata = {k: v for k, v in metadata_of(kube_object).items() if k not in left_out}
    return {**kube_object, "metadata": metadata}


def _refusal(write: RoleWrite, why: str) -> Forbidden:
    return statuses.forbidden(write.resource.group_resource, name_of(write.new), why)


def _missing_text(user: User, missing: Iterable[Rule]) -> str:
    groups = " ".join(map(quoted, user.groups))
    lines = sorted(_rule_text(rule) for rule in _compacted(missing))
    return "\n".join(
        (
            f"user {quoted(user.name)} (groups=[{groups}]) "
            "is attempting to grant RBAC permissions not currently held:",
            *lines,
        )
    )


def _compacted(atoms: Iterable[Rule]) -> Iterable[Rule]:
    """Put the verbs on one resource into one rule; paths stay apart, as Kubernetes shows them."""
    together: dict[Rule, dict[str, None]] = {}
    for atom in atoms:
        if atom.paths:
            yield atom
            continue
        key = Rule((), atom.groups, atom.resources, atom.names)
        together.setdefault(key, {}).update(dict.fromkeys(atom.verbs))
    for key, verbs in together.items():
        yield Rule(tuple(verbs), key.groups, key.resources, key.names)


def _rule_text(rule: Rule) -> str:
    fields = (
        ("APIGroups", rule.groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.paths),
        ("ResourceNames", rule.names),
        ("Verbs", rule.verbs),
    )
    shown = (f"{name}:[{' '.join(map(quoted, held))}]" for name, held in fields if held)
    return "{" + ", ".join(shown) + "}"
