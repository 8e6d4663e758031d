"""docs/reference/api.md: every kind of ours, and the fields of those that we act on."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools.reference.api_meanings import (
    ACTED_ON,
    BY_COMMANDS,
    FIELDS,
    FOR_OTHERS,
    LEFT_OUT,
    WRITTEN,
    GroupKind,
)
from tools.reference.markdown import cell, table

from clusterspace.apis.crds import definitions
from clusterspace.apiserver.admission import unenforced
from clusterspace.kube.objects import Object

_INTRODUCTION: Final = """\
# Kinds

The hub serves these kinds beside Kubernetes' own. Their names, versions and fields are those of
Karmada, KubeFleet and SIG Multicluster; what is said here is what they do on this hub. A field
without a meaning has the one that its project gives it.

- [Karmada](../karmada-compatibility.md) and [KubeFleet](../kubefleet-compatibility.md)
  compatibility say what differs.
- [Conditions and reasons](conditions.md) lists what a status may say.
- `kubectl explain KIND.spec` shows the same fields on the command line.
- **Not acted on** means stored and without effect. Whoever writes such a field of a policy is
  answered with a Warning.
- In Clusters, `apiEndpoint`, both Secret references, `proxyURL`, `proxyHeader` and
  `insecureSkipTLSVerification` take `update` on `clusters/credentials`.
"""

_FOLDED: Final = frozenset(
    {
        "conditions",
        "labelSelector",
        "fieldSelector",
        "hardNodeAffinity",
        "nodeClaim",
        "targetCluster",
    }
)
"""Fields that are the same wherever they stand: what is inside of them is not listed again."""


def page() -> str:
    """Return the whole page."""
    return "\n".join(_lines()).rstrip() + "\n"


def group_kind_of(definition: Object) -> GroupKind:
    """Return the group and kind that a definition brings."""
    return definition["spec"]["group"], definition["spec"]["names"]["kind"]


def acts(key: GroupKind) -> str:
    """Return who acts on a kind. KeyError: nobody has said so yet."""
    if key in ACTED_ON:
        return "our controllers"
    if key in WRITTEN:
        return "our controllers, which write it"
    if key in BY_COMMANDS:
        return "`clusterspace migrate`, which writes it"
    other = unenforced.UNATTENDED.get(key) or FOR_OTHERS[key]
    return f"{other}'s controllers only"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a kind, as the page shows it."""

    path: str
    type: str

    @property
    def plain_path(self) -> str:
        """The path as tables of meanings write it: without the marks of lists and maps."""
        return self.path.replace("[]", "").replace(".*", "")


def fields_of(definition: Object, version: str = "") -> list[Field]:
    """Return the fields of the stored version of a kind, or of the one named."""
    versions: list[Object] = definition["spec"]["versions"]
    found = next(
        each for each in versions if (each["name"] == version if version else each["storage"])
    )
    schema: Object = found["schema"]["openAPIV3Schema"]
    return [
        each
        for each in _walk(schema, "")
        if each.path.partition(".")[0].removesuffix("[]") not in ("apiVersion", "kind", "metadata")
    ]


def _walk(schema: Mapping[str, Any], place: str) -> Iterator[Field]:
    required: list[str] = schema.get("required") or []
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties") or {}
    for name, each in properties.items():
        path = f"{place}.{name}" if place else name
        mark = ", required" if name in required and place else ""
        yield Field(path, _type_of(each) + mark)
        if name not in _FOLDED:
            yield from _walk_inside(each, path)


def _walk_inside(schema: Mapping[str, Any], path: str) -> Iterator[Field]:
    if "items" in schema:
        yield from _walk(schema["items"], f"{path}[]")
        return
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        yield from _walk(values, f"{path}.*")
    else:
        yield from _walk(schema, path)


def _type_of(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        kind = " \\| ".join(f"`{each}`" for each in schema["enum"])
    elif schema.get("x-kubernetes-int-or-string"):
        kind = "integer or string"
    elif "items" in schema:
        kind = f"list of {_type_of(schema['items'])}"
    elif isinstance(schema.get("additionalProperties"), dict):
        kind = f"map of {_type_of(schema['additionalProperties'])}"
    else:
        kind = str(schema.get("format") or schema.get("type") or "any value")
    return f"{kind}, default `{schema['default']}`" if "default" in schema else kind


def unheeded_of(key: GroupKind) -> dict[str, str]:
    """Return the fields of a kind that nothing acts on, and what happens instead."""
    warned = {
        ".".join(each.path): f"{f'`{each.value}`: ' if each.value else ''}{each.consequence}"
        for each in unenforced.FIELDS.get(key, ())
    }
    return {**LEFT_OUT.get(key, {}), **warned}


def _lines() -> Iterator[str]:
    known = {group_kind_of(each): each for each in definitions()}
    yield _INTRODUCTION
    yield "## All kinds\n"
    rows = [_index_row(known[key]) for key in sorted(known)]
    yield table(("kind", "group", "short names", "scope", "versions", "acted on by"), rows)
    yield "\nOf several versions the first is stored.\n"
    shown: set[GroupKind] = set()
    for key in ACTED_ON:
        if key in shown:
            continue
        alike = [each for each in ACTED_ON if _is_alike(known[key], known[each])]
        shown.update(alike)
        yield from _kinds(alike, known[key])
    yield "## Written by controllers\n"
    yield "To look at, not to edit.\n"
    yield table(
        ("kind", "what it is"),
        [(f"{kind} ({group})", says) for (group, kind), says in WRITTEN.items()],
    )
    yield "\n## Written by commands\n"
    yield table(
        ("kind", "what it is"),
        [(f"{kind} ({group})", says) for (group, kind), says in BY_COMMANDS.items()],
    )


def _is_alike(one: Object, other: Object) -> bool:
    return one["spec"]["group"] == other["spec"]["group"] and fields_of(one) == fields_of(other)


def _index_row(definition: Object) -> tuple[str, ...]:
    key = group_kind_of(definition)
    spec: Object = definition["spec"]
    versions = sorted(spec["versions"], key=lambda each: not each["storage"])
    kind = f"[{key[1]}](#{_anchor(key)})" if key in ACTED_ON else key[1]
    names = ", ".join(f"`{each}`" for each in spec["names"].get("shortNames") or ())
    return (
        kind,
        key[0],
        names,
        spec["scope"],
        ", ".join(str(each["name"]) for each in versions),
        acts(key),
    )


def _title(keys: Iterable[GroupKind]) -> str:
    return " and ".join(kind for _, kind in keys)


def _anchor(key: GroupKind) -> str:
    known = {group_kind_of(each): each for each in definitions()}
    alike = [each for each in ACTED_ON if _is_alike(known[key], known[each])]
    return _title(alike).lower().replace(" ", "-")


def _kinds(keys: list[GroupKind], definition: Object) -> Iterator[str]:
    yield f"## {_title(keys)}\n"
    for key in keys:
        yield f"**{key[1]}** (`{key[0]}`): {ACTED_ON[key]}\n"
    meanings, unheeded = FIELDS[keys[0]], unheeded_of(keys[0])
    rows: list[tuple[str, str, str]] = []
    for each in fields_of(definition):
        path = each.plain_path
        if path in ("spec", "status") or any(path.startswith(f"{gone}.") for gone in unheeded):
            continue
        says = meanings.get(path, "")
        if path in unheeded:
            says = f"{says} **Not acted on**: {unheeded[path]}.".strip()
        rows.append((f"`{each.path}`", each.type, cell(says)))
    yield table(("field", "type", "meaning"), rows)
    yield ""
    for version in definition["spec"]["versions"]:
        if version["storage"]:
            continue
        there = {each.path for each in fields_of(definition, version["name"])}
        missing = [each.path for each in fields_of(definition) if each.path not in there]
        if missing:
            named = ", ".join(f"`{each}`" for each in missing)
            yield f"Not in {version['name']}: {named}.\n"
