"""FlowSchemas and PriorityLevelConfigurations, read; and which schema a request matches.

Schemas are asked in the order of their precedence, and by name among equals; the first that has a
rule for who asks and for what is asked decides. What validation let through may still make no sense
here: a schema whose level is not there is passed over, and a level that cannot be read is not used.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.apiserver.http.fairness.fair_queues import Queuing
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.users import User
from clusterspace.kube.objects import Object, find_at, name_of, uid_of

EVERY: Final = "*"
_ACCOUNT: Final = "system:serviceaccount:"
_DEFAULT_SHARES: Final = 30
_DEFAULT_PRECEDENCE: Final = 1000
_MOST_QUEUES: Final = 4096
"""More than these keep nobody further apart, and an object may ask for ten million."""


@dataclass(frozen=True, slots=True)
class PriorityLevel:
    """A PriorityLevelConfiguration."""

    name: str
    uid: str
    is_exempt: bool
    shares: int
    lendable_percent: int
    borrowing_percent: int | None
    """Of its own seats, how many it may borrow; None for as many as there are."""
    queuing: Queuing | None
    """How requests wait; None where they are refused instead."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One entry of a schema: these users, asking one of these things."""

    users: frozenset[str]
    groups: frozenset[str]
    accounts: tuple[str, ...]
    """What names of ServiceAccounts begin with, for all accounts of a namespace."""
    resource_rules: tuple[Mapping[str, Any], ...]
    url_rules: tuple[Mapping[str, Any], ...]

    def matches(self, user: User, info: RequestInfo) -> bool:
        """Whether this is about the user and what they ask."""
        is_user = (
            EVERY in self.users
            or EVERY in self.groups
            or user.name in self.users
            or not self.groups.isdisjoint(user.groups)
            or (bool(self.accounts) and user.name.startswith(self.accounts))
        )
        if not is_user:
            return False
        if not info.is_resource:
            return any(_matches_url(rule, info) for rule in self.url_rules)
        return any(_matches_resource(rule, info) for rule in self.resource_rules)


@dataclass(frozen=True, slots=True)
class FlowSchema:
    """A FlowSchema."""

    name: str
    uid: str
    level: str
    precedence: int
    distinguisher: str
    rules: tuple[_Rule, ...]

    def matches(self, user: User, info: RequestInfo) -> bool:
        """Whether a request is one of those the schema is about."""
        return any(rule.matches(user, info) for rule in self.rules)

    def distinguish(self, user: User, info: RequestInfo) -> str:
        """Return which of its flows a request belongs to."""
        if self.distinguisher == "ByUser":
            return user.name
        return info.namespace if self.distinguisher == "ByNamespace" else ""

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces it names: only for these does it matter which one is asked for."""
        named = (
            namespace
            for rule in self.rules
            for each in rule.resource_rules
            for namespace in each.get("namespaces") or ()
        )
        return frozenset(named) - {EVERY}


def _contains(listed: Iterable[str] | None, sought: str) -> bool:
    values = listed or ()
    return EVERY in values or sought in values


def _matches_resource(rule: Mapping[str, Any], info: RequestInfo) -> bool:
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if not (
        _contains(rule.get("verbs"), info.verb)
        and _contains(rule.get("resources"), resource)
        and _contains(rule.get("apiGroups"), info.group)
    ):
        return False
    if not info.namespace:
        return bool(rule.get("clusterScope"))
    return _contains(rule.get("namespaces"), info.namespace)


def _matches_url(rule: Mapping[str, Any], info: RequestInfo) -> bool:
    if not _contains(rule.get("verbs"), info.verb):
        return False
    for url in cast("list[str]", rule.get("nonResourceURLs") or ()):
        # As kube-apiserver does: `/healthz` is also about `/healthz/etcd`, star or not.
        prefix = url.removesuffix(EVERY)
        if url in (EVERY, info.path) or info.path.startswith(
            prefix if prefix.endswith("/") else f"{prefix}/"
        ):
            return True
    return False


def read_flow_schema(schema: Object) -> FlowSchema:
    """Read a FlowSchema that is stored, and so is valid."""
    spec: Mapping[str, Any] = schema.get("spec") or {}
    return FlowSchema(
        name=name_of(schema),
        uid=uid_of(schema),
        level=str(find_at(spec, "priorityLevelConfiguration", "name") or ""),
        precedence=spec.get("matchingPrecedence") or _DEFAULT_PRECEDENCE,
        distinguisher=str(find_at(spec, "distinguisherMethod", "type") or ""),
        rules=tuple(_read_rule(rule) for rule in spec.get("rules") or ()),
    )


def _read_rule(rule: Mapping[str, Any]) -> _Rule:
    users, groups, accounts = set[str](), set[str](), list[str]()
    for subject in rule.get("subjects") or ():
        if user := find_at(subject, "user", "name"):
            users.add(str(user))
        if group := find_at(subject, "group", "name"):
            groups.add(str(group))
        if account := subject.get("serviceAccount"):
            prefix = f"{_ACCOUNT}{account.get('namespace', '')}:"
            name = str(account.get("name", ""))
            if name == EVERY:
                accounts.append(prefix)
            else:
                users.add(f"{prefix}{name}")
    return _Rule(
        frozenset(users),
        frozenset(groups),
        tuple(accounts),
        tuple(rule.get("resourceRules") or ()),
        tuple(rule.get("nonResourceRules") or ()),
    )


def read_level(level: Object) -> PriorityLevel | None:
    """Read a PriorityLevelConfiguration; None when its parts contradict each other."""
    spec: Mapping[str, Any] = level.get("spec") or {}
    is_exempt = spec.get("type") == "Exempt"
    common: Mapping[str, Any] | None = spec.get("exempt" if is_exempt else "limited")
    if common is None:
        if not is_exempt:
            return None
        common = {}
    queuing = None
    if find_at(common, "limitResponse", "type") == "Queue":
        said = find_at(common, "limitResponse", "queuing")
        if not said:
            return None
        queuing = Queuing(
            max(1, min(said.get("queues", 64), _MOST_QUEUES)),
            max(1, said.get("handSize", 8)),
            max(1, said.get("queueLengthLimit", 50)),
        )
    shares = common.get("nominalConcurrencyShares")
    return PriorityLevel(
        name=name_of(level),
        uid=uid_of(level),
        is_exempt=is_exempt,
        shares=(0 if is_exempt else _DEFAULT_SHARES) if shares is None else shares,
        lendable_percent=common.get("lendablePercent") or 0,
        borrowing_percent=common.get("borrowingLimitPercent"),
        queuing=None if is_exempt else queuing,
    )
