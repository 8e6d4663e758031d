"""Interpreters that people bring: customizations with scripts, and webhooks. Pure.

Which kinds they speak of, for which operations, and what the hub refuses to store.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast
from urllib.parse import urlsplit

from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_subdomain_problems
from clusterspace.kube.objects import Object, find_at, name_of
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource

GROUP: Final = "config.karmada.io"
CUSTOMIZATION: Final = "ResourceInterpreterCustomization"
WEBHOOK_CONFIGURATION: Final = "ResourceInterpreterWebhookConfiguration"
CUSTOMIZATIONS: Final = GroupVersionResource(GROUP, "v1alpha1", "resourceinterpretercustomizations")
WEBHOOK_CONFIGURATIONS: Final = GroupVersionResource(
    GROUP, "v1alpha1", "resourceinterpreterwebhookconfigurations"
)

RETAIN: Final = "Retain"
INTERPRET_REPLICA: Final = "InterpretReplica"
INTERPRET_COMPONENT: Final = "InterpretComponent"
REVISE_REPLICA: Final = "ReviseReplica"
INTERPRET_STATUS: Final = "InterpretStatus"
AGGREGATE_STATUS: Final = "AggregateStatus"
INTERPRET_HEALTH: Final = "InterpretHealth"
INTERPRET_DEPENDENCY: Final = "InterpretDependency"

SCRIPT_FIELDS: Final = {
    RETAIN: "retention",
    INTERPRET_REPLICA: "replicaResource",
    INTERPRET_COMPONENT: "componentResource",
    REVISE_REPLICA: "replicaRevision",
    INTERPRET_STATUS: "statusReflection",
    AGGREGATE_STATUS: "statusAggregation",
    INTERPRET_HEALTH: "healthInterpretation",
    INTERPRET_DEPENDENCY: "dependencyInterpretation",
}
"""Every operation, and where in `spec.customizations` its script is."""

CONTEXT_VERSION: Final = "v1alpha1"
"""The one version of ResourceInterpreterContext there is."""

_ANY: Final = "*"
_DEFAULT_SECONDS: Final = 10
_MOST_SECONDS: Final = 30


def script_of(customization: Object, operation: str) -> str:
    """Return the script of a customization for an operation; empty when there is none."""
    place = ("spec", "customizations", SCRIPT_FIELDS[operation], "luaScript")
    found = find_at(customization, *place)
    return found if isinstance(found, str) else ""


def target_of(customization: Object) -> tuple[str, str]:
    """Return apiVersion and kind of what a customization speaks of."""
    target: Object = find_at(customization, "spec", "target") or {}
    return str(target.get("apiVersion") or ""), str(target.get("kind") or "")


@dataclass(frozen=True, slots=True)
class InterpreterWebhook:
    """One entry of `webhooks`: where it is, and what it is asked about."""

    configuration: str
    name: str
    client: Object
    seconds: int
    rules: tuple[Object, ...]

    def interprets(self, operation: str, kind: GroupVersionKind) -> bool:
        """Whether it is asked for an operation about a kind."""
        asked = (
            ("operations", operation),
            ("apiGroups", kind.group),
            ("apiVersions", kind.version),
            ("kinds", kind.kind),
        )
        return any(
            all(not {value, _ANY}.isdisjoint(rule.get(field) or ()) for field, value in asked)
            for rule in self.rules
        )


def read_webhooks(configurations: Iterable[Object]) -> tuple[InterpreterWebhook, ...]:
    """Return the webhooks of all configurations, by the names of these and in their order."""
    return tuple(
        InterpreterWebhook(
            configuration=name_of(configuration),
            name=str(each.get("name")),
            client=cast("Object", each.get("clientConfig") or {}),
            seconds=int(each.get("timeoutSeconds") or _DEFAULT_SECONDS),
            rules=tuple(cast("list[Object]", each.get("rules") or [])),
        )
        for configuration in sorted(configurations, key=name_of)
        for each in cast("list[Object]", configuration.get("webhooks") or [])
    )


def customization_causes(customization: Object, others: Iterable[Object]) -> Iterator[Cause]:
    """Yield why a customization cannot be as it is, beside the others there are.

    Two that answer the same question about a kind contradict each other, but for dependencies:
    those of all of them count.
    """
    target = target_of(customization)
    for field, value in zip(("apiVersion", "kind"), target, strict=True):
        if not value:
            yield causes.required(f"spec.target.{field}")
    for other in others:
        if name_of(other) == name_of(customization) or target_of(other) != target:
            continue
        for operation, field in SCRIPT_FIELDS.items():
            if operation == INTERPRET_DEPENDENCY:
                continue
            if script_of(customization, operation) and script_of(other, operation):
                why = f"{CUSTOMIZATION} {name_of(other)} has a script for it already: change that"
                yield causes.forbidden(f"spec.customizations.{field}", why)


def webhook_configuration_causes(configuration: Object) -> Iterator[Cause]:
    """Yield every reason why a configuration of webhooks cannot be as it is."""
    names: set[str] = set()
    for index, each in enumerate(cast("list[Object]", configuration.get("webhooks") or [])):
        place, name = f"webhooks[{index}]", str(each.get("name") or "")
        if dns1123_subdomain_problems(name) or name.count(".") < _DOTS:
            why = "must be a domain name with at least three parts, like replicas.example.com"
            yield causes.invalid(f"{place}.name", name, why)
        if name in names:
            yield causes.duplicate(f"{place}.name", name)
        names.add(name)
        for number, rule in enumerate(cast("list[Object]", each.get("rules") or [])):
            yield from _rule_causes(rule, f"{place}.rules[{number}]")
        seconds = each.get("timeoutSeconds")
        if seconds is not None and not 1 <= int(seconds) <= _MOST_SECONDS:
            why = f"must be between 1 and {_MOST_SECONDS} seconds"
            yield causes.invalid(f"{place}.timeoutSeconds", seconds, why)
        client = cast("Object", each.get("clientConfig") or {})
        yield from _client_causes(client, f"{place}.clientConfig")
        versions = cast("list[Any]", each.get("interpreterContextVersions") or [])
        if CONTEXT_VERSION not in versions:
            why = f"must include {CONTEXT_VERSION}, which is what webhooks are sent"
            yield causes.invalid(f"{place}.interpreterContextVersions", versions, why)
        if len(set(versions)) < len(versions):
            yield causes.duplicate(f"{place}.interpreterContextVersions", versions)


_DOTS: Final = 2


def _rule_causes(rule: Object, place: str) -> Iterator[Cause]:
    for field in ("operations", "apiGroups", "apiVersions", "kinds"):
        values = cast("list[str]", rule.get(field) or [])
        if not values:
            yield causes.required(f"{place}.{field}")
        if _ANY in values and len(values) > 1:
            yield causes.invalid(f"{place}.{field}", values, "'*' must stand alone")
        if field != "operations":
            continue
        for index, value in enumerate(values):
            if value != _ANY and value not in SCRIPT_FIELDS:
                supported = (_ANY, *sorted(SCRIPT_FIELDS))
                yield causes.not_supported(f"{place}.{field}[{index}]", value, supported)


def _client_causes(client: Object, place: str) -> Iterator[Cause]:
    url, service = client.get("url"), cast("Object | None", client.get("service"))
    if (url is None) == (service is None):
        yield causes.required(place, "exactly one of url or service is required")
    elif url is not None:
        try:
            parts = urlsplit(str(url))
            is_usable = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        else:
            if parts.username is not None or parts.query or parts.fragment:
                is_usable = False
        if not is_usable:
            why = "must be https://HOST[:PORT]/PATH, without a user, a query or a fragment"
            yield causes.invalid(f"{place}.url", url, why)
    elif service is not None:
        path = str(service.get("path") or "/")
        if not path.startswith("/"):
            yield causes.invalid(f"{place}.service.path", path, "must begin with '/'")
