"""Who may do what, and the rest of the control plane's own kinds."""

from collections.abc import Callable
from typing import Final

from clusterspace.builtins.printers.cells import (
    AGE,
    NAME,
    NONE,
    UNSET,
    condition_status,
    flag,
    given,
    items_at,
    number,
    pair,
    printer,
    selector_text,
    shown,
    size,
    text,
    wide,
)
from clusterspace.kube import times
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, metadata_of


def _subjects(kind: str) -> Callable[[Object], str]:
    def read(binding: Object) -> str:
        subjects = [each for each in items_at(binding, "subjects") if each.get("kind") == kind]
        if kind != "ServiceAccount":
            return ", ".join(str(each.get("name")) for each in subjects)
        return ", ".join(f"{each.get('namespace', '')}/{each.get('name')}" for each in subjects)

    return read


BINDINGS: Final = printer(
    NAME,
    pair("Role", ("roleRef",), ("kind", "name")),
    AGE,
    wide("Users", _subjects("User")),
    wide("Groups", _subjects("Group")),
    wide("ServiceAccounts", _subjects("ServiceAccount")),
)


def _request_state(request: Object) -> str:
    types = {condition.get("type") for condition in items_at(request, "status", "conditions")}
    decision = [word for word in ("Approved", "Denied") if word in types] or ["Pending"]
    failure = ["Failed"] if "Failed" in types else []
    issued = ["Issued"] if find_at(request, "status", "certificate") else []
    return ",".join([*decision, *failure, *issued])


CERTIFICATE_REQUESTS: Final = printer(
    NAME,
    AGE,
    text("SignerName", "spec", "signerName"),
    text("Requestor", "spec", "username"),
    given("RequestedDuration", "spec", "expirationSeconds", when_absent=NONE, form=times.age),
    shown("Condition", _request_state),
)


DISRUPTION_BUDGETS: Final = printer(
    NAME,
    given("Min Available", "spec", "minAvailable", when_absent="N/A", form=str),
    given("Max Unavailable", "spec", "maxUnavailable", when_absent="N/A", form=str),
    number("Allowed Disruptions", "status", "disruptionsAllowed"),
    AGE,
)

LEASES: Final = printer(NAME, text("Holder", "spec", "holderIdentity"), AGE)

WEBHOOK_CONFIGURATIONS: Final = printer(NAME, size("Webhooks", "webhooks"), AGE)


def _param_reference(binding: Object) -> str:
    reference: Object | None = find_at(binding, "spec", "paramRef")
    if reference is None:
        return UNSET
    if "selector" in reference:
        return selector_text(reference["selector"])
    return f"{reference.get('namespace') or '*'}/{reference.get('name')}"


ADMISSION_POLICIES: Final = printer(
    NAME,
    size("Validations", "spec", "validations"),
    pair("ParamKind", ("spec", "paramKind"), ("apiVersion", "kind"), when_absent=UNSET),
    AGE,
)

ADMISSION_BINDINGS: Final = printer(
    NAME, text("PolicyName", "spec", "policyName"), shown("ParamRef", _param_reference), AGE
)


def _available(api_service: Object) -> str:
    found = find_condition(items_at(api_service, "status", "conditions"), "Available")
    if found is None:
        return "Unknown"
    status, reason = found.get("status"), found.get("reason")
    return str(status) if status == "True" else f"{status} ({reason})"


API_SERVICES: Final = printer(
    NAME,
    pair("Service", ("spec", "service"), ("namespace", "name"), when_absent="Local"),
    shown("Available", _available),
    AGE,
)

PRIORITY_CLASSES: Final = printer(
    NAME,
    number("Value", "value"),
    flag("Global-Default", "globalDefault"),
    AGE,
    text("PreemptionPolicy", "preemptionPolicy"),
)

RUNTIME_CLASSES: Final = printer(NAME, text("Handler", "handler"), AGE)


FLOW_SCHEMAS: Final = printer(
    NAME,
    text("PriorityLevel", "spec", "priorityLevelConfiguration", "name"),
    shown("MatchingPrecedence", lambda item: find_at(item, "spec", "matchingPrecedence") or 0),
    text("DistinguisherMethod", "spec", "distinguisherMethod", "type", when_absent=NONE),
    AGE,
    condition_status("MissingPL", "Dangling", when_absent="?"),
)


_LIMITED: Final = ("spec", "limited")
_QUEUING: Final = (*_LIMITED, "limitResponse", "queuing")

PRIORITY_LEVELS: Final = printer(
    NAME,
    text("Type", "spec", "type"),
    given("NominalConcurrencyShares", *_LIMITED, "nominalConcurrencyShares", when_absent=NONE),
    given("Queues", *_QUEUING, "queues", when_absent=NONE),
    given("HandSize", *_QUEUING, "handSize", when_absent=NONE),
    given("QueueLengthLimit", *_QUEUING, "queueLengthLimit", when_absent=NONE),
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
