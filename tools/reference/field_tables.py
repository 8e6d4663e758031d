"""The last part of the compatibility pages: what becomes of every field of every kind.

acts     it does what the other project says, or what the page says instead
refused  a write is refused, with the field and the reason
warned   it is stored, has no effect, and whoever writes it is told so by a Warning
ours     the other project has no such field
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.reference.api_meanings import (
    ACTED_ON,
    FOR_OTHERS,
    LEFT_OUT,
    OURS,
    REFUSED,
    REFUSED_VALUES,
    SEE_POLICY,
    WRITTEN,
    GroupKind,
)
from tools.reference.api_page import fields_of, group_kind_of
from tools.reference.markdown import table

from clusterspace.apis.crds import definitions
from clusterspace.apiserver.admission import unenforced
from clusterspace.kube.objects import Object

_DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
HEADING: Final = "## Every field\n"
_INTRODUCTION: Final = """
Made from the code. What a field means is in [reference/api.md](reference/api.md).

- **acts**: it does what {project} says, or what this page says instead.
- **refused**: a write is refused, with the field and the reason.
- **warned**: it is stored, has no effect, and whoever writes it is told so by a Warning.
- **ours**: {project} has no such field. It acts, and without it nothing is different.
"""


@dataclass(frozen=True, slots=True)
class FieldTable:
    """The last part of one page: the kinds of one project."""

    project: str
    file: Path
    groups: frozenset[str]

    def page(self) -> str:
        """Return the page with its last part made anew."""
        written = self.file.read_text().partition(HEADING)[0].rstrip() + "\n\n"
        introduction = _INTRODUCTION.format(project=self.project).rstrip()
        lines = [HEADING.rstrip(), introduction, "", *_lines(self.groups)]
        return written + "\n".join(lines) + "\n"


TABLES: Final = (
    FieldTable(
        "KubeFleet",
        _DOCS / "kubefleet-compatibility.md",
        frozenset({"cluster.kubernetes-fleet.io", "placement.kubernetes-fleet.io"}),
    ),
    FieldTable(
        "Karmada",
        _DOCS / "karmada-compatibility.md",
        frozenset(
            f"{group}.karmada.io"
            for group in (
                "apps", "autoscaling", "cluster", "config", "networking", "policy", "remedy",
                "search", "work",
            )
        ),
    ),
)  # fmt: skip


def outcome_of(key: GroupKind, path: str) -> str:
    """Return what becomes of a field that people write."""
    if key in unenforced.UNATTENDED:
        return "warned"
    if any(f"{path}.".startswith(f"{each}.") for each in OURS.get(key, ())):
        return "ours"
    for field in unenforced.FIELDS.get(key, ()):
        warned = ".".join(field.path)
        if not field.value and f"{path}.".startswith(f"{warned}."):
            return "warned"
        if warned == path:
            return f"acts; `{field.value}` warned"
    left_out = LEFT_OUT.get(key, {}).get(path)
    if left_out and left_out != SEE_POLICY:
        # Anything else would be passed over in silence: a row of `unenforced.FIELDS` warns of it.
        assert left_out == REFUSED, (key, path)
        return "refused"
    refused = REFUSED_VALUES.get(key, {}).get(path)
    return f"acts; {refused} refused" if refused else "acts"


def fields_written_by_people(definition: Object) -> list[str]:
    """Return the fields of a kind outside of its status, and outside of what is refused anyway."""
    key = group_kind_of(definition)
    refused = [path for path, why in LEFT_OUT.get(key, {}).items() if why == REFUSED]
    return [
        each.plain_path
        for each in fields_of(definition)
        if each.plain_path not in ("spec", "status")
        and not each.plain_path.startswith("status.")
        and not any(each.plain_path.startswith(f"{gone}.") for gone in refused)
    ]


def _lines(groups: frozenset[str]) -> Iterator[str]:
    known = {group_kind_of(each): each for each in definitions()}
    ours = {key: each for key, each in sorted(known.items()) if key[0] in groups}
    shown: set[GroupKind] = set()
    for key, definition in ours.items():
        if key in shown or (key not in ACTED_ON and key not in unenforced.UNATTENDED):
            continue
        rows = _rows(definition)
        alike = [each for each in ours if _rows(ours[each]) == rows and _is_written(each)]
        shown.update(alike)
        yield f"### {', '.join(kind for _, kind in alike)}\n"
        yield table(("field", ""), rows)
        yield ""
    yield "### Kinds that people do not write\n"
    rows = [
        (kind, "the hub writes it" if (group, kind) in WRITTEN else "served, and written by nobody")
        for group, kind in ours
        if not _is_written((group, kind))
    ]
    assert all(_is_written(key) or key in WRITTEN or key in FOR_OTHERS for key in ours)
    yield table(("kind", ""), rows)


def _is_written(key: GroupKind) -> bool:
    return key in ACTED_ON or key in unenforced.UNATTENDED


def _rows(definition: Object) -> list[tuple[str, str]]:
    key = group_kind_of(definition)
    paths = dict.fromkeys(fields_written_by_people(definition))
    return [(f"`{path}`", outcome_of(key, path)) for path in paths]
