"""One rule of a role, and what it allows.

    Rule(verbs=("get",), groups=("",), resources=("pods", "*/log"), names=())
    Rule(verbs=("get",), paths=("/healthz", "/api/*"))

https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.kube.objects import Object

EVERYTHING: Final = "*"


@dataclass(frozen=True)
class Rule:
    """Verbs on resources, or verbs on paths; never both."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    @cached_property
    def _verb_set(self) -> frozenset[str]:
        return frozenset(self.verbs)

    @cached_property
    def _group_set(self) -> frozenset[str]:
        return frozenset(self.groups)

    @cached_property
    def _resource_set(self) -> frozenset[str]:
        return frozenset(self.resources)

    @cached_property
    def _name_set(self) -> frozenset[str]:
        return frozenset(self.names)

    def allows_verb(self, verb: str) -> bool:
        """Whether the verb is one of the rule's."""
        return verb in self._verb_set or EVERYTHING in self._verb_set

    def allows_group(self, group: str) -> bool:
        """Whether the API group is one of the rule's."""
        return group in self._group_set or EVERYTHING in self._group_set

    def allows_resource(self, resource: str, subresource: str = "") -> bool:
        """Whether the resource, or its subresource, is one of the rule's.

        `pods` does not include `pods/log`; `*` includes both, and `*/log` every log.
        """
        held = self._resource_set
        if EVERYTHING in held:
            return True
        if not subresource:
            return resource in held
        return f"{resource}/{subresource}" in held or f"*/{subresource}" in held

    def allows_name(self, name: str) -> bool:
        """Whether the object's name is one of the rule's; a rule without names is about all."""
        return not self.names or name in self._name_set

    def allows_path(self, path: str) -> bool:
        """Whether the path is one of the rule's; a star at the end stands for any rest."""
        return any(path_matches(held, path) for held in self.paths)

    def allows(self, info: RequestInfo, name: str) -> bool:
        """Whether the rule allows what a request asks for; `name` is the object it is about."""
        if not self.allows_verb(info.verb):
            return False
        if not info.is_resource:
            return self.allows_path(info.path)
        return (
            self.allows_group(info.group)
            and self.allows_resource(info.resource, info.subresource)
            and self.allows_name(name)
        )

    def shares_with(self, other: "Rule") -> bool:
        """Whether any verb, and for resources any group, is in both rules."""
        verbs, groups = self._verb_set, self._group_set
        if EVERYTHING not in verbs and verbs.isdisjoint(other.verbs):
            return False
        return not other.groups or EVERYTHING in groups or not groups.isdisjoint(other.groups)

    @property
    def size(self) -> int:
        """How many texts the rule is made of."""
        return sum(map(len, (self.verbs, self.groups, self.resources, self.names, self.paths)))

    def as_object(self) -> Object:
        """Return the rule as roles and reviews write it."""
        fields = {
            "verbs": self.verbs,
            "apiGroups": self.groups,
            "resources": self.resources,
            "resourceNames": self.names,
            "nonResourceURLs": self.paths,
        }
        return {field: list(values) for field, values in fields.items() if values}


def path_matches(held: str, path: str) -> bool:
    """Whether a path of a rule includes another one; a star at its end stands for any rest."""
    if held.endswith(EVERYTHING):
        return path.startswith(held.rstrip(EVERYTHING))
    return held == path


def read_rules(listed: Any) -> tuple[Rule, ...]:
    """Read `rules` of a role; what is not a rule is left out, and so grants nothing."""
    if not isinstance(listed, list):
        return ()
    found = cast("list[object]", listed)
    return tuple(_read_rule(cast("Object", each)) for each in found if isinstance(each, dict))


def _read_rule(fields: Object) -> Rule:
    return Rule(
        verbs=_texts(fields.get("verbs")),
        groups=_texts(fields.get("apiGroups")),
        resources=_texts(fields.get("resources")),
        names=_texts(fields.get("resourceNames")),
        paths=_texts(fields.get("nonResourceURLs")),
    )


def _texts(listed: Any) -> tuple[str, ...]:
    if not isinstance(listed, list):
        return ()
    return tuple(each for each in cast("list[object]", listed) if isinstance(each, str))
