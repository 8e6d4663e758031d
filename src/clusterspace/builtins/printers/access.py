"""Who may do what, and the rest of the control plane's own kinds."""

from collections.abc import Callable
from typing import Any, Final

from clusterspace.builtins.printers.cells import (
    AGE,
    NAME,
    NONE,
    UNSET,
    flag,
    items_at,
    number,
    printer,
    selector_text,
    shown,
    size,
    text,
    wide,
)
from clusterspace.kube import durations
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, metadata_of


def _role(binding: Object) -> str:
    return f"{find_at(binding, 'roleRef', 'kind')}/{find_at(binding, 'roleRef', 'name')}"


def _subjects(kind: str) -> Callable[[Object], str]:
    def read(binding: Object) -> str:
        named = [held for held in items_at(binding, "subjects") if held.get("kind") == kind]
        return ", ".join(map(_subject_name, named))

    return read


def _subject_name(subject: Object) -> str:
    if subject.get("kind") != "ServiceAccount":
        return str(subject.get("name"))
    return f"{subject.get('namespace', '')}/{subject.get('name')}"


BINDINGS: Final = printer(
    NAME,
    shown("Role", _role),
    AGE,
    wide("Users", _subjects("User")),
    wide("Groups", _subjects("Group")),
    wide("ServiceAccounts", _subjects("ServiceAccount")),
)


def _request_state(request: Object) -> str:
    types = {held.get("type") for held in items_at(request, "status", "conditions")}
    decision = [word for word in ("Approved", "Denied") if word in types] or ["Pending"]
    failure = ["Failed"] if "Failed" in types else []
    issued = ["Issued"] if find_at(request, "status", "certificate") else []
    return ",".join([*decision, *failure, *issued])


def _requested_duration(request: Object) -> str:
    seconds = find_at(request, "spec", "expirationSeconds")
    return NONE if seconds is None else durations.age(seconds)


CERTIFICATE_REQUESTS: Final = printer(
    NAME,
    AGE,
    text("SignerName", "spec", "signerName"),
    text("Requestor", "spec", "username"),
    shown("RequestedDuration", _requested_duration),
    shown("Condition", _request_state),
)


def _or_not_set(*path: str) -> Callable[[Object], str]:
    def read(budget: Object) -> str:
        limit = find_at(budget, *path)
        return "N/A" if limit is None else str(limit)

    return read


DISRUPTION_BUDGETS: Final = printer(
    NAME,
    shown("Min Available", _or_not_set("spec", "minAvailable")),
    shown("Max Unavailable", _or_not_set("spec", "maxUnavailable")),
    number("Allowed Disruptions", "status", "disruptionsAllowed"),
    AGE,
)

LEASES: Final = printer(NAME, text("Holder", "spec", "holderIdentity"), AGE)

WEBHOOK_CONFIGURATIONS: Final = printer(NAME, size("Webhooks", "webhooks"), AGE)


def _param_kind(policy: Object) -> str:
    kind: Object | None = find_at(policy, "spec", "paramKind")
    return f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else UNSET


def _param_reference(binding: Object) -> str:
    reference: Object | None = find_at(binding, "spec", "paramRef")
    if reference is None:
        return UNSET
    if "selector" in reference:
        return selector_text(reference["selector"])
    return f"{reference.get('namespace') or '*'}/{reference.get('name')}"


ADMISSION_POLICIES: Final = printer(
    NAME, size("Validations", "spec", "validations"), shown("ParamKind", _param_kind), AGE
)

ADMISSION_BINDINGS: Final = printer(
    NAME, text("PolicyName", "spec", "policyName"), shown("ParamRef", _param_reference), AGE
)


def _backend(api_service: Object) -> str:
    service: Object | None = find_at(api_service, "spec", "service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def _available(api_service: Object) -> str:
    found = find_condition(items_at(api_service, "status", "conditions"), "Available")
    if found is None:
        return "Unknown"
    status, reason = found.get("status"), found.get("reason")
    return str(status) if status == "True" else f"{status} ({reason})"


API_SERVICES: Final = printer(NAME, shown("Service", _backend), shown("Available", _available), AGE)

PRIORITY_CLASSES: Final = printer(
    NAME,
    number("Value", "value"),
    flag("Global-Default", "globalDefault"),
    AGE,
    text("PreemptionPolicy", "preemptionPolicy"),
)

RUNTIME_CLASSES: Final = printer(NAME, text("Handler", "handler"), AGE)


def _dangling(flow_schema: Object) -> str:
    found = find_condition(items_at(flow_schema, "status", "conditions"), "Dangling")
    return "?" if found is None else str(found.get("status"))


FLOW_SCHEMAS: Final = printer(
    NAME,
    text("PriorityLevel", "spec", "priorityLevelConfiguration", "name"),
    shown("MatchingPrecedence", lambda held: find_at(held, "spec", "matchingPrecedence") or 0),
    text("DistinguisherMethod", "spec", "distinguisherMethod", "type", when_absent=NONE),
    AGE,
    shown("MissingPL", _dangling),
)


def _limit(*path: str) -> Callable[[Object], Any]:
    def read(level: Object) -> Any:
        value = find_at(level, "spec", "limited", *path)
        return NONE if value is None else value

    return read


_QUEUING: Final = ("limitResponse", "queuing")

PRIORITY_LEVELS: Final = printer(
    NAME,
    text("Type", "spec", "type"),
    shown("NominalConcurrencyShares", _limit("nominalConcurrencyShares")),
    shown("Queues", _limit(*_QUEUING, "queues")),
    shown("HandSize", _limit(*_QUEUING, "handSize")),
    shown("QueueLengthLimit", _limit(*_QUEUING, "queueLengthLimit")),
    AGE,
)


def _claim_state(claim: Object) -> str:
    status: Object = claim.get("status") or {}
    states = [
        *(["deleted"] if metadata_of(claim).get("deletionTimestamp") else []),
        *(["allocated"] if status.get("allocation") is not None else []),
        *(["reserved"] if status.get("reservedFor") else []),
    ]
    return ",".join(states) or "pending"


RESOURCE_CLAIMS: Final = printer(NAME, shown("State", _claim_state), AGE)

RESOURCE_SLICES: Final = printer(
    NAME,
    text("Node", "spec", "nodeName"),
    text("Driver", "spec", "driver"),
    text("Pool", "spec", "pool", "name"),
    AGE,
)
