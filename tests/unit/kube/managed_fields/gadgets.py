"""A made-up kind with every way to own fields, and Hypothesis strategies for its objects."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from clusterspace.kube.managed_fields.field_sets import FieldSet
from clusterspace.kube.managed_fields.managers import Write, read_entries
from clusterspace.kube.schemas.model import Schema

NOW = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:05:00Z"

_TEXT = {"type": "string"}

SPEC = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "size": _TEXT,
        "data": {"type": "object", "additionalProperties": _TEXT},
        "selector": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "additionalProperties": _TEXT,
        },
        "command": {"type": "array", "items": _TEXT},
        "tags": {"type": "array", "items": _TEXT, "x-kubernetes-list-type": "set"},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {
                "type": "object",
                "properties": {
                    "port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"},
                    "name": _TEXT,
                },
            },
        },
        "inner": {"type": "object", "properties": {"a": _TEXT, "b": _TEXT}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}

SCHEMA = Schema({"type": "object", "properties": {"spec": SPEC, "status": {"type": "object"}}})


def gadget(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """Return a Gadget with this spec."""
    kept = {} if spec is None else {"spec": spec}
    return {
        "apiVersion": "example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": "g", **metadata},
        **kept,
    }


def write_by(manager: str, now: str = NOW, **changes: Any) -> Write:
    """Return a write to a Gadget."""
    write = Write(manager=manager, api_version="example.com/v1", now=now, schema=SCHEMA)
    return replace(write, **changes)


def owners(kube_object: dict[str, Any]) -> dict[tuple[str, str], FieldSet]:
    """Return what everybody owns, by manager and operation."""
    entries = read_entries(kube_object["metadata"].get("managedFields"))
    return {(entry.manager, entry.operation): entry.fields for entry in entries.values()}


def owned_json(kube_object: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Return what everybody owns, as fieldsV1."""
    return {owner: fields.to_json() for owner, fields in owners(kube_object).items()}


words = st.sampled_from(["x", "y", "z", "a<b", "é"])

_ports = st.lists(
    st.fixed_dictionaries(
        {"port": st.integers(1, 3)},
        optional={"protocol": st.sampled_from(["TCP", "UDP"]), "name": words},
    ),
    max_size=3,
    unique_by=lambda port: (port["port"], port.get("protocol", "TCP")),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, width=16) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)

specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 3),
        "size": words,
        "data": st.dictionaries(words, words, max_size=3),
        "selector": st.dictionaries(words, words, max_size=2),
        "command": st.lists(words, max_size=2),
        "tags": st.lists(words, max_size=3, unique=True),
        "ports": _ports,
        "inner": st.fixed_dictionaries({}, optional={"a": words, "b": words}),
        "free": st.dictionaries(words, json_values, max_size=2),
    },
)

field_sets = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(
        st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"s"', "i:0", "."]), inner, max_size=3
    ),
    max_leaves=8,
).map(FieldSet.from_json)
