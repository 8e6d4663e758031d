"""Blanks of built-in kinds have the places an empty object of the kind is written with."""

from typing import Any

import pytest

from clusterspace.api.builtin_schemas import schema_for
from clusterspace.kube.managed_fields.blanks import blank_object
from clusterspace.kube.managed_fields.update import track_update
from clusterspace.kube.managed_fields.writes import Write


def blank(group: str, kind: str) -> dict[str, Any]:
    schema = schema_for(group, "v1", kind)
    assert schema is not None
    return blank_object(kind, schema)


@pytest.mark.parametrize(
    ("group", "kind", "expected"),
    [
        ("", "ConfigMap", {"metadata": {}}),
        ("", "Service", {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
        ("", "Pod", {"metadata": {}, "spec": {"containers": None}, "status": {}}),
        (
            "apps",
            "Deployment",
            {
                "metadata": {},
                "spec": {
                    "selector": {},
                    "strategy": {},
                    "template": {"metadata": {}, "spec": {"containers": None}},
                },
                "status": {},
            },
        ),
    ],
)
def test_blanks(group: str, kind: str, expected: Any) -> None:
    assert blank(group, kind) == expected


def test_a_creator_owns_what_is_in_those_places_not_the_places() -> None:
    schema = schema_for("apps", "v1", "Deployment")
    assert schema is not None
    write = Write("m", "apps/v1", "2026-01-01T00:00:00Z", schema, blank=blank("apps", "Deployment"))
    new = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "status": {}}

    made = track_update(None, {**new, "spec": {"strategy": {"type": "Recreate"}}}, write)

    (entry,) = made["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:spec": {"f:strategy": {"f:type": {}}}}
