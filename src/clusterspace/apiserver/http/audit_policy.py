"""kube-apiserver's audit policy: which requests have events, and how much these say.

    apiVersion: audit.k8s.io/v1
    kind: Policy
    omitStages: [RequestReceived]
    rules:                          # the first that matches counts; without one there is no event
    - level: None                   # or Metadata, Request (with its body), RequestResponse
      users: [system:kube-proxy]
      verbs: [watch]
      resources: [{group: "", resources: [endpoints, pods/*, "*/status"], resourceNames: [web]}]
      namespaces: [shop]
      omitStages: [ResponseStarted]
      omitManagedFields: true
    - level: Metadata
      nonResourceURLs: ["/api*"]

https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/

One thing is stricter than there. What carries credentials has its bodies written only when a rule
names it: a rule for everything that says `RequestResponse` does not put all Secrets into a file.

Without a file, a policy of our own counts (`default_policy`): writes, reads of Secrets, shells and
proxies, and two things that no file can say: failed logins whatever they were for, and renewed
leases when they were refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, TypeAlias

import structlog

from clusterspace.apiserver.http.request_info import READ_VERBS, RequestInfo
from clusterspace.apiserver.http.users import User
from clusterspace.kube.configuration_files import Section, read_configuration
from clusterspace.kube.names import dns1123_subdomain_problems

_log = structlog.get_logger(__name__)

API_VERSION: Final = "audit.k8s.io/v1"
STAGES: Final = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")

_POLICY_FIELDS: Final = frozenset(
    {"apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"}
)
_RULE_FIELDS: Final = frozenset(
    {
        "level",
        "users",
        "userGroups",
        "verbs",
        "resources",
        "namespaces",
        "nonResourceURLs",
        "omitStages",
        "omitManagedFields",
    }
)
CARRIERS: Final = {
    "work.karmada.io": ("works",),
    "placement.kubernetes-fleet.io": (
        "works",
        "clusterresourcesnapshots",
        "resourcesnapshots",
        "clusterresourceenvelopes",
        "resourceenvelopes",
    ),
}
"""Resources whose objects hold others whole, by group."""

_CREDENTIALS: Final = frozenset(
    {
        ("", "secrets"),
        ("", "serviceaccounts/token"),
        ("authentication.k8s.io", "tokenreviews"),
        # These hold what is placed on clusters, Secrets among it.
        *(
            (group, f"{plural}{subresource}")
            for group, plurals in CARRIERS.items()
            for plural in plurals
            for subresource in ("", "/status")
        ),
    }
)


class Level(IntEnum):
    """How much of a request is written down."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


LEVELS: Final = {
    "None": Level.NONE,
    "Metadata": Level.METADATA,
    "Request": Level.REQUEST,
    "RequestResponse": Level.REQUEST_RESPONSE,
}
LEVEL_NAMES: Final = {level: name for name, level in LEVELS.items()}


@dataclass(frozen=True, slots=True)
class GroupResources:
    """Resources of one group; without any it is all of them, subresources too."""

    group: str
    resources: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()

    def fits(self, info: RequestInfo) -> bool:
        """Whether a request is about one of them, whatever its name."""
        if self.group != info.group:
            return False
        return not self.resources or any(self._is(each, info) for each in self.resources)

    def has_name(self, info: RequestInfo) -> bool:
        """Whether it is one of the objects that are meant; names count with resources only."""
        return not (self.names and self.resources) or info.name in self.names

    def _is(self, pattern: str, info: RequestInfo) -> bool:
        whole = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        if pattern in ("*", whole, f"{info.resource}/*"):
            return True
        return bool(info.subresource) and pattern == f"*/{info.subresource}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; what it does not say matches everything."""

    level: Level
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    resources: tuple[GroupResources, ...] = ()
    namespaces: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False
    refusals_only: bool = False
    """Whether what went well has no events; no file can say so."""

    def may_match(self, info: RequestInfo) -> bool:
        """Whether verb and resource fit; the rest may differ between two requests for the same."""
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            fits = not self.resources or any(each.fits(info) for each in self.resources)
            return info.is_resource and fits
        return not (self.paths and info.is_resource)

    def matches(self, user: User | None, info: RequestInfo) -> bool:
        """Whether this is the rule of a request; one that failed to log in has no user."""
        if not self.may_match(info):
            return False
        if self.users and (user is None or user.name not in self.users):
            return False
        if self.groups and (user is None or self.groups.isdisjoint(user.groups)):
            return False
        if self.namespaces and info.namespace not in self.namespaces:
            return False
        if self.resources:
            return any(each.fits(info) and each.has_name(info) for each in self.resources)
        return not self.paths or any(_is_below(info.path, each) for each in self.paths)

    @property
    def is_for_all(self) -> bool:
        """Whether nothing is left to ask once verb and resource fit."""
        named = any(each.names and each.resources for each in self.resources)
        return not (self.users or self.groups or self.namespaces or self.paths or named)

    def names(self, group: str, resource: str) -> bool:
        """Whether a resource is written in the rule, not only meant by a star."""
        return any(each.group == group and resource in each.resources for each in self.resources)


def _is_below(path: str, pattern: str) -> bool:
    return path == pattern or (pattern.endswith("*") and path.startswith(pattern[:-1]))


@dataclass(frozen=True, slots=True)
class Decision:
    """How one request is audited."""

    level: Level
    omit_stages: frozenset[str] = frozenset()
    omit_managed_fields: bool = False
    refusals_only: bool = False


_NOT_AUDITED: Final = Decision(Level.NONE)
_MOST_KNOWN: Final = 4096
_Candidate: TypeAlias = tuple[Rule | None, Decision]


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules in their order; without any, nothing is audited."""

    rules: tuple[Rule, ...] = ()
    failed_logins: Level | None = None
    """How failed logins are audited; None: as the rules have it for what was asked."""
    _known: "dict[tuple[str, bool, str, str, str], tuple[tuple[Rule | None, Decision], ...]]" = (
        field(default_factory=dict[Any, Any], repr=False, compare=False)
    )
    """What may count for requests of one verb and resource: each is asked for at every request."""

    def decide(self, user: User | None, info: RequestInfo) -> Decision:
        """Return how a request is audited; who failed to log in is nobody."""
        if user is None and self.failed_logins is not None:
            return Decision(self.failed_logins)
        key = (info.verb, info.is_resource, info.group, info.resource, info.subresource)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()  # anybody can ask for resources that there are not
            known = self._known[key] = tuple(self._decisions(info))
        for rule, decision in known:
            if rule is None or rule.matches(user, info):
                return decision
        return _NOT_AUDITED

    def _decisions(self, info: RequestInfo) -> Iterator[_Candidate]:
        """Yield what may count for such requests, in order; None in place of a rule: it does."""
        whole = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        for rule in self.rules:
            if not rule.may_match(info):
                continue
            level = rule.level
            if (info.group, whole) in _CREDENTIALS and not rule.names(info.group, whole):
                level = min(level, Level.METADATA)
            decision = Decision(
                level, rule.omit_stages, rule.omit_managed_fields, rule.refusals_only
            )
            yield (None if rule.is_for_all else rule), decision
            if rule.is_for_all:
                return


# -- the default -----------------------------------------------------------------------------------

SECRETS: Final = frozenset({"secrets"})


def default_document(reads: frozenset[str] = SECRETS, *, renewals: bool = False) -> dict[str, Any]:
    """Return the default as a file would have it: a beginning for a policy of one's own.

    `reads` are resources whose reads are audited too, as `RESOURCE` or `RESOURCE.GROUP`;
    `renewals` audits leases that somebody renewed: of an idle fleet that is all there is.
    """
    connects = [f"*/{each}" for each in ("exec", "attach", "portforward", "proxy")]
    by_group: dict[str, list[str]] = {"": connects, "cluster.karmada.io": ["clusters/proxy"]}
    for each in sorted(reads):
        resource, _, group = each.partition(".")
        by_group.setdefault(group, []).append(resource)
    leases = {"group": "coordination.k8s.io", "resources": ["leases"]}
    renewed = {"level": "None", "verbs": ["update", "patch"], "resources": [leases]}
    resources = [{"group": group, "resources": names} for group, names in by_group.items()]
    return {
        "apiVersion": API_VERSION,
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            *([] if renewals else [renewed]),
            {"level": "Metadata", "resources": resources},
            {"level": "None", "verbs": sorted(READ_VERBS)},
            {"level": "Metadata"},
        ],
    }


def default_policy(reads: frozenset[str] = SECRETS, *, renewals: bool = False) -> Policy:
    """Return the policy of a server that was given none."""
    rules = read_policy(default_document(reads, renewals=renewals)).rules
    if not renewals:
        # Who tries to renew what is not theirs is somebody to know about.
        refused = replace(rules[0], level=Level.METADATA, refusals_only=True)
        rules = (refused, *rules[1:])
    return Policy(rules, failed_logins=Level.METADATA)


# -- reading ---------------------------------------------------------------------------------------


def read_policy(document: Any) -> Policy:
    """Read a Policy; UnusableConfiguration names the place of what cannot be."""
    policy = read_configuration(document, "Policy", (API_VERSION,), called="audit Policy")
    _warn_of_unknown(policy, _POLICY_FIELDS)
    stages = _read_stages(policy)
    omits = policy.flag("omitManagedFields", default=False)
    rules = policy.sections("rules", "it must be a list of rules")
    if not rules:
        raise policy.refusal("rules", "there must be at least one")
    return Policy(tuple(_read_rule(each, stages, omits) for each in rules))


def _read_rule(rule: Section, stages: frozenset[str], omits: bool) -> Rule:
    _warn_of_unknown(rule, _RULE_FIELDS)
    level = LEVELS.get(str(rule.get("level") or ""))
    if level is None:
        raise rule.refusal("level", f"{rule.get('level')!r} is none of {', '.join(LEVELS)}")
    paths = rule.texts("nonResourceURLs")
    for index, path in enumerate(paths):
        if path != "*" and not path.startswith("/"):
            raise rule.refusal(f"nonResourceURLs[{index}]", f"{path!r} must begin with a slash")
        if "*" in path[:-1]:
            why = f"{path!r} may have a star at its end only"
            raise rule.refusal(f"nonResourceURLs[{index}]", why)
    resources = tuple(_read_resources(each) for each in rule.sections("resources"))
    namespaces = rule.texts("namespaces")
    if paths and (resources or namespaces):
        why = "a rule is for resources or for other URLs, not for both"
        raise rule.refusal("nonResourceURLs", why)
    return Rule(
        level=level,
        users=frozenset(rule.texts("users")),
        groups=frozenset(rule.texts("userGroups")),
        verbs=frozenset(rule.texts("verbs")),
        resources=resources,
        namespaces=frozenset(namespaces),
        paths=paths,
        omit_stages=stages | _read_stages(rule),
        omit_managed_fields=rule.flag("omitManagedFields", default=omits),
    )


def _read_resources(entry: Section) -> GroupResources:
    _warn_of_unknown(entry, frozenset({"group", "resources", "resourceNames"}))
    group = entry.text("group")
    if group and any(dns1123_subdomain_problems(group)):
        why = "a group has no version, and is a DNS name in lower case"
        raise entry.refusal("group", f"{group!r}: {why}")
    resources, names = entry.texts("resources"), entry.texts("resourceNames")
    if names and not resources:
        raise entry.refusal("resourceNames", "they need at least one resource")
    return GroupResources(group, resources, frozenset(names))


def _read_stages(entry: Section) -> frozenset[str]:
    stages = entry.texts("omitStages")
    for index, each in enumerate(stages):
        if each not in STAGES:
            why = f"{each!r} is none of {', '.join(STAGES)}"
            raise entry.refusal(f"omitStages[{index}]", why)
    return frozenset(stages)


def _warn_of_unknown(entry: Section, known: frozenset[str]) -> None:
    """Say which fields count for nothing; kube-apiserver starts with such a file, too."""
    for each in entry.unknown(known):
        _log.warning("the audit policy has a field that is not known", field=entry.at(each))
