"""Our own kinds as whole CustomResourceDefinitions, read from the files beside this one."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from clusterspace.apis.crds.notation import ColumnLine, FieldLine, KindBlock, TypeBlock, read_blocks
from clusterspace.apis.crds.schemas import rules_of, schema_of
from clusterspace.builtins.definitions.reading import API_VERSION, KIND
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import version_priority

_FILES: Final = Path(__file__).parent
_TEXT: Final[Object] = {"type": "string"}
_META: Final[Object] = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}}
_APPROVAL: Final = "api-approved.kubernetes.io"


@cache
def definitions() -> tuple[Object, ...]:
    """Return every definition of ours, by name."""
    blocks = [
        block
        for path in sorted(_FILES.glob("*.txt"))
        for block in read_blocks(path.read_text(encoding="utf-8"))
    ]
    types = {block.name: block.fields for block in blocks if isinstance(block, TypeBlock)}
    kinds: dict[str, list[KindBlock]] = {}
    for block in blocks:
        if isinstance(block, KindBlock):
            kinds.setdefault(f"{block.plural}.{block.group}", []).append(block)
    return tuple(_definition(name, kinds[name], types) for name in sorted(kinds))


def _definition(
    name: str, blocks: Sequence[KindBlock], types: dict[str, tuple[FieldLine, ...]]
) -> Object:
    versions = sorted(blocks, key=lambda block: version_priority(block.version))
    first = versions[0]
    approvals = [block.facts["approved"] for block in blocks if "approved" in block.facts]
    annotations = {"annotations": {_APPROVAL: approvals[0]}} if approvals else {}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, **annotations},
        "spec": {
            "group": first.group,
            "names": _names(first),
            "scope": first.scope,
            "versions": [_version(block, types) for block in versions],
            "conversion": {"strategy": "None"},
        },
    }


def _names(block: KindBlock) -> Object:
    listed = {
        "shortNames": block.facts.get("short"),
        "categories": block.facts.get("categories"),
    }
    return {
        "plural": block.plural,
        "singular": block.kind.lower(),
        "kind": block.kind,
        "listKind": f"{block.kind}List",
        **{name: text.split(",") for name, text in listed.items() if text},
    }


def _version(block: KindBlock, types: dict[str, tuple[FieldLine, ...]]) -> Object:
    own = schema_of(block.fields, types)
    schema = {**own, "properties": {**_META, **own.get("properties", {})}}
    columns = {"additionalPrinterColumns": _columns(block.columns)} if block.columns else {}
    status: Object = {"subresources": {"status": {}}} if "status" in block.facts else {}
    return {
        "name": block.version,
        "served": True,
        "storage": "storage" in block.facts,
        "schema": {"openAPIV3Schema": {**schema, **rules_of(block.rules)}},
        **status,
        **columns,
    }


def _columns(columns: Iterable[ColumnLine]) -> list[Object]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "jsonPath": column.path,
            **({"priority": 1} if column.is_wide else {}),
        }
        for column in columns
    ]
