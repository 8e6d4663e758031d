"""Whatever well-typed object is sent, it is stored or refused, and never an accident."""

from random import Random
from typing import Any

import pytest
from tests.admitted import admitted

from clusterspace.builtins import wire_types
from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.normal_form import normalize
from clusterspace.builtins.strategies import (
    Creation,
    prepare_for_create,
    prepare_for_update,
)
from clusterspace.builtins.validation.validate import validate_create, validate_update
from clusterspace.builtins.wire_types import ListOf, MapOf, PointerTo, Scalar, StructRef, WireType
from clusterspace.errors import ApiError

CREATION = Creation(uid="u-1", now="2026-01-01T00:00:00Z")
DEEPEST = 9

# Texts and keys that open as many branches as possible, among some that open none.
TEXTS = (
    *("", "a", "A_!", "-", "x/y", "example.com", "v1", "apps/v1", "25%", "@daily", "None"),
    *("10.0.0.1", "10.0.0.0/8", "TZ=x * * * * *", "metadata.labels", "RollingUpdate", "Always"),
    *("ClusterIP", "Container", "Indexed", "Exists", "In", "Localhost", "Resource", "Limited"),
    *("Prefix", "LoadBalancer", "FQDN", "IPv4", "kubernetes.io/tls", "User"),
)
KEYS = ("", "a", "a b", "cpu", "memory", "storage", "hugepages-2Mi", "hugepages-x", "tls.crt")
SCALARS: dict[str, tuple[Any, ...]] = {
    "string": TEXTS,
    "bool": (True, False),
    "int32": (-1, 0, 1, 80, 70000),
    "int64": (-1, 0, 1, 600),
    "float64": (0, 1.5),
    "intstr": (-1, 0, 5, "50%", "x"),
    "quantity": ("-1", "0", "1", "1500m", "1Gi"),
    "bytes": ("", "YQ=="),
    "time": ("2026-01-01T00:00:00Z",),
    "microtime": ("2026-01-01T00:00:00.000000Z",),
    "raw": ({}, {"a": None}),
    "json": (1, {}),
    "schemaOrBool": (True, {}),
    "schemaOrArray": ({}, [{}]),
    "schemaOrStrings": (["a"], {}),
}


class Maker:
    """Makes objects of a kind at random, the same ones every time."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def struct(self, name: str, depth: int = 0) -> dict[str, Any]:
        fields = wire_types.struct_type(name).fields.items() if depth < DEEPEST else ()
        share = 0.5 if depth < 4 else 0.25
        return {
            key: self.value(field.type, depth + 1)
            for key, field in fields
            if self._random.random() < share
        }

    def value(self, wire_type: WireType, depth: int) -> Any:
        if self._random.random() < 0.05:
            return None
        match wire_type:
            case PointerTo():
                return self.value(wire_type.target, depth)
            case ListOf():
                return [self.value(wire_type.element, depth) for _ in range(self._few())]
            case MapOf():
                keys = [self._random.choice(KEYS) for _ in range(self._few())]
                return {key: self.value(wire_type.value, depth) for key in keys}
            case StructRef():
                return self.struct(wire_type.name, depth)
            case Scalar():
                return self._random.choice(SCALARS[wire_type.form])

    def _few(self) -> int:
        return self._random.choice((0, 1, 2))


@pytest.mark.parametrize("kind", wire_types.built_in_kinds(), ids=str)
def test_any_well_typed_object_is_stored_or_refused(kind) -> None:
    maker = Maker(str(kind))
    struct = wire_types.struct_of_kind(kind)
    assert struct is not None
    for _ in range(5):
        first, second = (
            apply_defaults(kind, normalize(maker.struct(struct.name), kind).object) for _ in "12"
        )
        try:
            stored = prepare_for_create(kind, admitted(kind, first), CREATION)
        except ApiError:  # a plug-in has no use for it
            stored = prepare_for_create(kind, first, CREATION)

        assert apply_defaults(kind, first) == first
        assert normalize(stored, kind).object == stored
        assert isinstance(validate_create(kind, stored), tuple)
        assert isinstance(
            validate_update(kind, prepare_for_update(kind, second, stored), stored), tuple
        )
