"""kubectl may take over what it applied before there were owners; nobody else may."""

import json
from typing import Any

import pytest
from tests.unit.kube.managed_fields.gadgets import LATER, gadget, owned_json, owners, write_by

from clusterspace.errors import Conflict
from clusterspace.kube.managed_fields.apply import ANNOTATION, apply
from clusterspace.kube.managed_fields.managers import track_update


def annotated(spec: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    """Return an object that `kubectl apply` made and tracked as an update."""
    told = json.dumps(gadget(spec)) if text is None else text
    made = gadget(spec, annotations={ANNOTATION: told})
    return track_update(None, made, write_by("kubectl-client-side-apply"))


def test_kubectl_takes_over_what_it_applied_by_itself() -> None:
    live = annotated({"size": "S", "replicas": 1})

    after = apply(live, gadget({"size": "M", "replicas": 1}), write_by("kubectl", LATER))

    assert owned_json(after)["kubectl", "Apply"] == {"f:spec": {"f:replicas": {}, "f:size": {}}}
    assert ("f:spec", "f:size") not in owners(after)["kubectl-client-side-apply", "Update"]


def test_nobody_else_takes_it_over() -> None:
    with pytest.raises(Conflict):
        apply(annotated({"size": "S"}), gadget({"size": "M"}), write_by("ann", LATER))


def test_what_has_changed_since_is_still_contested() -> None:
    live = annotated({"size": "S", "replicas": 1})
    edited = track_update(
        live, {**live, "spec": {"size": "S", "replicas": 5}}, write_by("edit", LATER)
    )

    with pytest.raises(Conflict) as refused:
        apply(edited, gadget({"size": "M", "replicas": 2}), write_by("kubectl", LATER))

    assert refused.value.message == (
        'Apply failed with 1 conflict: conflict with "edit" using example.com/v1: .spec.replicas'
    )


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "5", json.dumps({**gadget({"size": "S"}), "apiVersion": "old/v1"})]
)
def test_an_annotation_that_tells_nothing_allows_nothing(text: str) -> None:
    live = annotated({"size": "S"}, text)

    with pytest.raises(Conflict):
        apply(live, gadget({"size": "M"}), write_by("kubectl", LATER))


def test_the_annotation_is_kept_true() -> None:
    after = apply(annotated({"size": "S"}), gadget({"size": "M"}), write_by("kubectl", LATER))

    assert json.loads(after["metadata"]["annotations"][ANNOTATION]) == gadget({"size": "M"})


def test_an_annotation_too_large_is_dropped() -> None:
    large = gadget({"size": "x" * 300_000})

    after = apply(annotated({"size": "S"}), large, write_by("kubectl", LATER))

    assert ANNOTATION not in after["metadata"]["annotations"]


def test_no_annotation_is_made_where_there_was_none() -> None:
    after = apply(None, gadget({"size": "M"}), write_by("kubectl"))

    assert "annotations" not in after["metadata"]
