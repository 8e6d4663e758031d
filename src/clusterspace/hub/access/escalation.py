"""Nobody grants what they do not hold: the check on roles and on bindings.

A user who may write roles could otherwise write one that allows everything, and bind it. The
verb `escalate` on a role and the verb `bind` on the role a binding refers to lift the check.
https://kubernetes.io/docs/reference/access-authn-authz/rbac/#privilege-escalation-prevention-and-bootstrapping
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.errors import Forbidden
from clusterspace.hub.access.authorizer import HubAuthorizer
from clusterspace.hub.access.grants import Place
from clusterspace.hub.access.parts import only_marks
from clusterspace.hub.access.rbac import EVERYTHING, Rule, missing_atoms, read_rules
from clusterspace.hub.access.snapshot import RBAC_GROUP, Snapshot, read_role_reference
from clusterspace.kube import statuses
from clusterspace.kube.field_paths import quoted
from clusterspace.kube.objects import Object, metadata_of, name_of, namespace_of
from clusterspace.kube.resources import ResourceInfo
from clusterspace.serving.request_info import RequestInfo
from clusterspace.serving.users import MASTERS, User

_ROLES: Final = frozenset({"roles", "clusterroles"})
_BINDINGS: Final = frozenset({"rolebindings", "clusterrolebindings"})
_AGGREGATION: Final = "aggregationRule"
_NO_AGGREGATION: Final = "must have cluster-admin privileges to use the aggregationRule"

_FULL_AUTHORITY: Final = (
    Rule((EVERYTHING,), (EVERYTHING,), (EVERYTHING,)),
    Rule((EVERYTHING,), paths=(EVERYTHING,)),
)

_COLLECTED: Final = ("ownerReferences", "finalizers")
"""What garbage collection changes of any object; it grants nothing."""


@dataclass(frozen=True, slots=True)
class RoleWrite:
    """A write of a role or binding: what it is about, and what it replaces."""

    user: User
    resource: ResourceInfo
    new: Object
    old: Object | None

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
            namespace=namespace_of(self.new),
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
        is_role, is_binding = resource.plural in _ROLES, resource.plural in _BINDINGS
        if resource.group != RBAC_GROUP or not (is_role or is_binding) or MASTERS in user.groups:
            return
        if old is not None and (_grants_the_same(new, old) or only_marks(user, new, old)):
            return
        write = RoleWrite(user, resource, new, old)
        if is_role:
            self._check_role(write)
        else:
            self._check_binding(write)

    def _check_role(self, write: RoleWrite) -> None:
        # A URL that creates names nothing, so neither does the right to escalate by creating.
        name = name_of(write.new) if write.old is not None else ""
        if self._may(write, "escalate", Place(namespace_of(write.new), name)):
            return
        self._require_held(write, read_rules(write.new.get("rules")))
        if write.new.get(_AGGREGATION) or (write.old or {}).get(_AGGREGATION):
            # It gathers whatever others write later, so only full authority covers it.
            held = self._authorizer.rules_of(write.user, "")
            if any(missing_atoms(_FULL_AUTHORITY, held)):
                raise _refusal(write, _NO_AGGREGATION)

    def _check_binding(self, write: RoleWrite) -> None:
        role = read_role_reference(namespace_of(write.new), write.new)
        if self._may(write, "bind", role):
            return
        rules = self._snapshot.grants.find_role(role)
        if rules is None:
            raise statuses.not_found(write.resource.group_resource, role.name)
        self._require_held(write, rules)

    def _may(self, write: RoleWrite, verb: str, role: Place) -> bool:
        plural = "roles" if role.namespace else "clusterroles"
        info = write.attributes(verb, plural, role.name)
        return self._authorizer.decide_now(write.user, info).allowed

    def _require_held(self, write: RoleWrite, rules: Iterable[Rule]) -> None:
        held = self._authorizer.lendable_rules_of(write.user, namespace_of(write.new))
        missing = tuple(missing_atoms(rules, held))
        if missing:
            raise _refusal(write, _missing_text(write.user, missing))


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
    together: dict[Rule, tuple[str, ...]] = {}
    for atom in atoms:
        if atom.paths:
            yield atom
            continue
        key = Rule((), atom.groups, atom.resources, atom.names)
        together[key] = tuple(dict.fromkeys((*together.get(key, ()), *atom.verbs)))
    for key, verbs in together.items():
        yield Rule(verbs, key.groups, key.resources, key.names)


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
