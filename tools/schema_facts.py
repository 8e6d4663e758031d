"""Reduce the published Kubernetes schemas to the facts the product needs, in one packed file.

    python tools/schema_facts.py            rewrite the packed file
    python tools/schema_facts.py --check    exit 1 when the packed file is stale

The source is the development dependency `kubernetes-validate`. What is kept is structure: types,
required fields, list and map types, merge keys, references. What is dropped is prose, and what
that package added for JSON Schema validators: null as a second type, and the kind's own name as
the only allowed `kind`.
"""

import argparse
import lzma
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

KUBERNETES: Final = "v1.35.0"
SOURCE: Final = f"kubernetes-json-schema/{KUBERNETES}-local/_definitions.json"
PACKED: Final = (
    Path(__file__).resolve().parents[1] / "src/clusterspace/builtins/data/builtin_schemas.json.xz"
)

COPIED: Final = (
    "required",
    "format",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-group-version-kind",
)

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
APIEXTENSIONS: Final = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
KEEPS_ANYTHING: Final = {"x-kubernetes-preserve-unknown-fields": True}

# Types whose wire form is not the shape of their fields.
BY_HAND: Final[Mapping[str, Mapping[str, Any]]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "x-kubernetes-int-or-string": True,
        "format": "quantity",
    },
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object", **KEEPS_ANYTHING},
    f"{META}.FieldsV1": {"type": "object", **KEEPS_ANYTHING},
    f"{META}.Patch": {"type": "object", **KEEPS_ANYTHING},
    f"{APIEXTENSIONS}.JSON": KEEPS_ANYTHING,
    f"{APIEXTENSIONS}.JSONSchemaPropsOrArray": KEEPS_ANYTHING,
    f"{APIEXTENSIONS}.JSONSchemaPropsOrBool": KEEPS_ANYTHING,
    f"{APIEXTENSIONS}.JSONSchemaPropsOrStringArray": KEEPS_ANYTHING,
}

# The source leaves defaults out, but server-side apply cannot name the elements of these lists
# without them: a key field that was left out has its default value.
KEY_DEFAULTS: Final[Mapping[tuple[str, str], Any]] = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.LocalObjectReference", "name"): "",
}


def main() -> int:
    """Rewrite the packed file, or say whether it is stale."""
    parser = argparse.ArgumentParser(description="Reduce the published schemas to facts.")
    parser.add_argument("--check", action="store_true", help="only say whether the file is stale")
    arguments = parser.parse_args()
    packed = pack(facts_of(read_definitions()))
    if arguments.check:
        return report_freshness(packed)
    PACKED.parent.mkdir(exist_ok=True)
    PACKED.write_bytes(packed)
    print(f"{PACKED.name}: {len(packed)} bytes")
    return 0


def read_definitions() -> Mapping[str, Any]:
    """Return the published definitions by name."""
    published = resources.files("kubernetes_validate").joinpath(SOURCE).read_bytes()
    return msgspec.json.decode(published)["$defs"]


def facts_of(definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of every definition, by name."""
    facts: dict[str, Any] = {
        name: BY_HAND.get(name) or reduce_node(node) for name, node in definitions.items()
    }
    for (name, field), default in KEY_DEFAULTS.items():
        facts[name]["properties"][field]["default"] = default
    return facts


def reduce_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of one place in a schema."""
    kept: dict[str, Any] = {key: node[key] for key in COPIED if key in node}
    if "$ref" in node:
        kept["$ref"] = str(node["$ref"]).rpartition("/")[2]
    if "type" in node:
        kept["type"] = without_null(node["type"])
    if "properties" in node:
        kept["properties"] = {name: reduce_node(held) for name, held in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            kept[key] = reduce_node(node[key])
    return kept


def without_null(types: str | list[str]) -> str:
    """Return the one type that is not null."""
    if isinstance(types, str):
        return types
    (only,) = (name for name in types if name != "null")
    return only


def pack(facts: Mapping[str, Any]) -> bytes:
    """Return the facts as compressed JSON, the same bytes for the same facts."""
    text = msgspec.json.encode(facts, order="deterministic")
    return lzma.compress(text, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, preset=9)


def report_freshness(packed: bytes) -> int:
    """Compare facts, not bytes: another liblzma may compress the same facts differently."""
    if PACKED.exists() and lzma.decompress(PACKED.read_bytes()) == lzma.decompress(packed):
        return 0
    print(f"{PACKED.name} is stale: run `python tools/schema_facts.py`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
