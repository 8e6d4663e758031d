"""Every write recorded from a real API server leaves the owners that server recorded.

Objects are taken as recorded, so defaulted fields are there before owners are worked out. Times
are not compared. The few writes in `FILLED_IN_LATER` cannot be judged here: the server fills
fields in after it has worked out who owns what, and the recording shows them already there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.corpus import load_scenario

from clusterspace.builtins import normal_form
from clusterspace.builtins.schemas import schema_for
from clusterspace.errors import ApiError
from clusterspace.kube.managed_fields.apply import apply
from clusterspace.kube.managed_fields.managers import (
    Write,
    raw_entries,
    track_update,
    without_entries,
)
from clusterspace.kube.objects import with_metadata
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.schemas.model import Schema
from clusterspace.kube.statuses import status_of

RECORDED_AT = "2026-01-01T00:00:00Z"

SCENARIOS = (
    "authorization",
    "configmap_crud",
    "content_negotiation",
    "crd",
    "deployment_defaults",
    "finalizers_and_deletion",
    "generate_name_and_dry_run",
    "json_patch",
    "leases_and_events",
    "merge_patch",
    "namespaces",
    "secrets_and_service_accounts",
    "server_side_apply",
    "server_side_apply_configmap_and_labels",
    "strategic_merge_patch",
    "watch",
)

FILLED_IN_LATER = {
    "Namespace": {"spec": ("finalizers",)},
    "Service": {"spec": ("clusterIPs", "ipFamilies", "ipFamilyPolicy")},
    "TokenRequest": {"spec": ("audiences",)},
}
"""What the server adds to new objects of a kind after ownership."""

NO_STATUS = ("ConfigMap", "Secret", "Event", "Lease", "Role", "RoleBinding")


@dataclass(frozen=True)
class Exchange:
    """One recorded write: the object before it, the request, and the answer."""

    place: str
    live: dict[str, Any] | None
    request: Mapping[str, Any]
    status: int
    answer: dict[str, Any]
    schema: Schema | None

    @property
    def path(self) -> str:
        return urlsplit(self.request["path"]).path

    @property
    def is_apply(self) -> bool:
        return "apply-patch" in self.request.get("contentType", "")

    def option(self, name: str, otherwise: str) -> str:
        return parse_qs(urlsplit(self.request["path"]).query).get(name, [otherwise])[0]

    @property
    def subresource(self) -> str:
        last = self.path.rpartition("/")[2]
        return last if last in ("status", "scale", "token") else ""


def timed(value: Any) -> Any:
    """Put a time where the recording has the symbol of one."""
    if isinstance(value, dict):
        return {key: timed(held) for key, held in value.items()}
    if isinstance(value, list):
        return [timed(held) for held in value]
    return RECORDED_AT if value == "<time>" else value


@cache
def exchanges(scenario: str) -> tuple[Exchange, ...]:
    return tuple(_exchanges(scenario))


def _exchanges(scenario: str) -> Iterator[Exchange]:
    """Replay a scenario, keeping the last known state of each object."""
    states: dict[str, dict[str, Any]] = {}
    custom: dict[str, Schema] = {}
    for number, step in enumerate(load_scenario("apiserver", scenario)["steps"]):
        request, response = step.get("request"), step.get("response", {})
        answer = timed(response.get("body"))
        if request is None or not isinstance(answer, dict):
            continue
        path = urlsplit(request["path"]).path
        if request["method"] in ("POST", "PUT", "PATCH"):
            object_path = path.removesuffix("/status").removesuffix("/scale")
            live = states.get(object_path) if request["method"] != "POST" else None
            schema = custom.get(answer.get("kind", "")) or builtin_schema(answer)
            yield Exchange(
                f"{scenario}[{number}]", live, request, response["status"], answer, schema
            )
        note_schema(answer, custom)
        note_state(request, path, answer, states)


def builtin_schema(answer: Mapping[str, Any]) -> Schema | None:
    group, _, version = str(answer.get("apiVersion", "")).rpartition("/")
    return schema_for(group, version, str(answer.get("kind", "")))


def note_schema(answer: Mapping[str, Any], custom: dict[str, Schema]) -> None:
    if answer.get("kind") == "CustomResourceDefinition":
        version = answer["spec"]["versions"][0]
        custom[answer["spec"]["names"]["kind"]] = Schema(version["schema"]["openAPIV3Schema"])


def note_state(
    request: Mapping[str, Any], path: str, answer: dict[str, Any], states: dict[str, Any]
) -> None:
    """Remember what is stored after a step; a scale write is told by what it did to replicas."""
    metadata = answer.get("metadata", {})
    if "dryRun" in request["path"] or "uid" not in metadata:
        return
    if answer["kind"] == "Scale":
        if request["method"] == "PATCH":
            parent = path.removesuffix("/scale")
            states[parent] = scaled(states[parent], answer["spec"]["replicas"])
        return
    own = f"{path}/{metadata['name']}" if request["method"] == "POST" else path
    states[own.removesuffix("/status")] = answer


def scaled(live: dict[str, Any], replicas: int) -> dict[str, Any]:
    write = Write("recorder", live["apiVersion"], RECORDED_AT, subresource="scale")
    return track_update(live, {**live, "spec": {**live["spec"], "replicas": replicas}}, write)


def write_of(exchange: Exchange) -> Write:
    answer, schema = exchange.answer, exchange.schema
    assert schema is not None
    is_custom = builtin_schema(answer) is None
    kind = GroupVersionKind.of(answer["apiVersion"], answer["kind"])
    reset = {"spec"} if exchange.subresource == "status" else {"status"}
    return Write(
        manager=exchange.option("fieldManager", "recorder"),
        api_version=answer["apiVersion"],
        now=RECORDED_AT,
        schema=schema,
        subresource=exchange.subresource,
        reset=frozenset() if answer["kind"] in NO_STATUS else frozenset(reset),
        blank={} if is_custom else normal_form.normalize({}, kind).object,
    )


def as_tracked(exchange: Exchange) -> dict[str, Any]:
    """Return the answer as it was when the server worked out the owners."""
    bare = without_entries(exchange.answer)
    if exchange.live is not None:
        return bare
    later = FILLED_IN_LATER.get(bare["kind"], {})
    parts = {
        part: {name: held for name, held in bare[part].items() if name not in names}
        for part, names in later.items()
    }
    return {**bare, **parts}


def after(exchange: Exchange) -> dict[str, Any]:
    write = write_of(exchange)
    if exchange.is_apply:
        force = exchange.option("force", "") == "true"
        return apply(exchange.live, exchange.request["body"], write, force=force)
    return track_update(exchange.live, as_tracked(exchange), write)


def entries_but_for_times(kube_object: Mapping[str, Any]) -> list[Any]:
    entries = raw_entries(kube_object) or []
    return [{key: held for key, held in entry.items() if key != "time"} for entry in entries]


def is_within(ours: Any, theirs: Any) -> bool:
    """Whether theirs is ours with defaults filled in: no list is longer, nothing is different."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(key in theirs and is_within(held, theirs[key]) for key, held in ours.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(is_within, ours, theirs))
    return ours == theirs


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_writes_leave_the_recorded_owners(scenario: str) -> None:
    tracked = [each for each in exchanges(scenario) if raw_entries(each.answer)]

    assert tracked
    for exchange in tracked:
        found = entries_but_for_times(after(exchange))
        assert found == entries_but_for_times(exchange.answer), exchange.place


@pytest.mark.parametrize(
    "scenario", ["server_side_apply", "server_side_apply_configmap_and_labels", "crd"]
)
def test_recorded_applies_leave_the_recorded_object(scenario: str) -> None:
    applies = [each for each in exchanges(scenario) if each.is_apply and raw_entries(each.answer)]

    assert applies
    for exchange in applies:
        assert is_within(unnumbered(after(exchange)), exchange.answer), exchange.place


def unnumbered(kube_object: dict[str, Any]) -> dict[str, Any]:
    """Return the object without what changes with every write."""
    return with_metadata(kube_object, resourceVersion=None, generation=None, managedFields=None)


JUDGED_ELSEWHERE = {
    2: "that the field manager is missing is noticed by the caller",
    11: "that the name is another than the URL's is noticed by the caller",
}


def test_recorded_refusals_are_told_in_the_recorded_words() -> None:
    steps = load_scenario("apiserver", "server_side_apply")["steps"]
    refused = [each for each in exchanges("server_side_apply") if each.status >= 400]
    judged = 0
    for exchange in refused:
        number = int(exchange.place.partition("[")[2].rstrip("]"))
        if number in JUDGED_ELSEWHERE:
            continue
        schema = schema_for("apps", "v1", "Deployment")
        assert schema is not None
        write = Write(exchange.option("fieldManager", ""), "apps/v1", RECORDED_AT, schema)
        with pytest.raises(ApiError) as error:
            apply(exchange.live, steps[number]["request"]["body"], write)
        assert status_of(error.value) == exchange.answer, exchange.place
        judged += 1
    assert judged == 4
