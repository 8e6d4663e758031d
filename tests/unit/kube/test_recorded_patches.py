"""Patches a real kube-apiserver was recorded with give the same objects and the same refusals."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.corpus import load_scenario

from clusterspace import errors
from clusterspace.builtins.schemas import schema_for
from clusterspace.kube.json_patches import apply_json_patch, apply_merge_patch, parse_json_patch
from clusterspace.kube.objects import Object, find_at, with_metadata, with_value
from clusterspace.kube.strategic_merge import apply_strategic_merge

DECIDED_ELSEWHERE = {
    "NotFound": "the object is looked up before a patch is applied",
    "UnsupportedMediaType": "the content type is read before the patch",
    "Conflict": "the resource version is compared when the result is written",
}
"""Reasons of refusals that are no business of the patch."""

RESULTS_REFUSED = ("does not match the name on the URL", "field is immutable")
"""Messages of refusals of the patched object, by the rules every update has to pass."""


@dataclass(frozen=True)
class Exchange:
    """One recorded PATCH, and the object it was sent for."""

    before: Object
    content_type: str
    patch: Any
    status: int
    answer: Object


def exchanges(scenario: str) -> Iterator[Exchange]:
    """Walk the steps, remembering the last object answered for each path."""
    present: dict[str, Object] = {}
    for step in load_scenario("apiserver", scenario)["steps"]:
        if "request" not in step:
            continue
        request, response = step["request"], step["response"]
        body, answer = request.get("body"), response["body"]
        if request["method"] == "PATCH":
            before = present.get(request["path"], {})
            # A body recorded as text was sent as that text.
            patch = json.loads(body) if isinstance(body, str) else body
            yield Exchange(before, request["contentType"], patch, response["status"], answer)
        if response["status"] < 300:
            name = answer["metadata"]["name"]
            created = request["method"] == "POST"
            present[f"{request['path']}/{name}" if created else request["path"]] = answer


def apply(exchange: Exchange) -> Object:
    match exchange.content_type:
        case "application/json-patch+json":
            return apply_json_patch(exchange.before, parse_json_patch(exchange.patch))
        case "application/merge-patch+json":
            return apply_merge_patch(exchange.before, exchange.patch)
        case _:
            group, _, version = exchange.before["apiVersion"].rpartition("/")
            schema = schema_for(group, version, exchange.before["kind"])
            assert schema is not None
            return apply_strategic_merge(exchange.before, exchange.patch, schema)


def comparable(kube_object: Object) -> Object:
    """Leave out what the server writes on every update, and lists that are empty.

    managedFields, resourceVersion and generation are the server's own; Kubernetes' typed objects
    do not show a list with nothing in it.
    """
    own = {"managedFields": None, "resourceVersion": None, "generation": None}
    return without_empty_lists(with_metadata(kube_object, **own))


def without_empty_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_empty_lists(held) for key, held in value.items() if held != []}
    return value


def with_defaults(kube_object: Object) -> Object:
    """Fill in what defaulting adds to a new container or ConfigMap volume of a pod template."""
    pod = find_at(kube_object, "spec", "template", "spec")
    if pod is None:
        return kube_object
    filled = {
        **pod,
        "containers": [{**container_defaults(one), **one} for one in pod["containers"]],
        **(
            {"volumes": [with_volume_mode(one) for one in pod["volumes"]]}
            if "volumes" in pod
            else {}
        ),
    }
    return with_value(kube_object, filled, "spec", "template", "spec")


def container_defaults(container: Object) -> Object:
    return {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent" if ":" in container["image"] else "Always",
    }


def with_volume_mode(volume: Object) -> Object:
    if "configMap" not in volume:
        return volume
    return {**volume, "configMap": {"defaultMode": 0o644, **volume["configMap"]}}


def is_decided_elsewhere(answer: Object) -> bool:
    return answer.get("reason") in DECIDED_ELSEWHERE or any(
        words in answer["message"] for words in RESULTS_REFUSED
    )


SCENARIOS = {"json_patch": 5, "merge_patch": 4, "strategic_merge_patch": 14}
"""Each scenario, with how many patches in it were accepted."""


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_recorded_patches_give_the_recorded_objects(scenario: str) -> None:
    accepted = [exchange for exchange in exchanges(scenario) if exchange.status == 200]

    assert len(accepted) == SCENARIOS[scenario]
    for exchange in accepted:
        patched = with_defaults(apply(exchange))
        assert comparable(patched) == comparable(exchange.answer), exchange.patch


@pytest.mark.parametrize(
    ("scenario", "expected"), [("json_patch", 4), ("merge_patch", 1), ("strategic_merge_patch", 1)]
)
def test_recorded_refusals_are_ours_too(scenario: str, expected: int) -> None:
    refused = [
        exchange
        for exchange in exchanges(scenario)
        if exchange.status != 200 and not is_decided_elsewhere(exchange.answer)
    ]

    assert len(refused) == expected
    for exchange in refused:
        with pytest.raises(errors.ApiError) as refusal:
            apply(exchange)
        told = refusal.value
        # Kubernetes spells the unknown reason as none.
        recorded = exchange.answer.get("reason", "Unknown"), exchange.answer["code"]
        assert (told.reason, told.code) == recorded
        assert told.message == exchange.answer["message"]
        assert (told.details is None) == ("details" not in exchange.answer)


@pytest.mark.parametrize(("scenario", "expected"), [("json_patch", 1), ("merge_patch", 2)])
def test_a_result_that_an_update_may_not_have_is_left_to_the_update(
    scenario: str, expected: int
) -> None:
    others = [
        exchange
        for exchange in exchanges(scenario)
        if exchange.status in (400, 409, 422) and is_decided_elsewhere(exchange.answer)
    ]

    assert len(others) == expected
    for exchange in others:
        assert apply(exchange)["metadata"] != exchange.before["metadata"]
