"""The shape of the source in figures, beside the same figures of code we learn from.

    python -m tools.measure [DIRECTORY]

Function lengths leave out docstrings. A private function counts as having one caller when its name
stands in one other place of its module. Figures are questions, not limits: where one is far off,
read the code there.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

_ANCHORS: Final = {
    "kopf": ("87", "17,953", "39, 218", "26 of 694 (3%)", "7%", "9.6%"),
    "starlette": ("36", "7,075", "24, 204", "12 of 527 (2%)", "7%", "3.5%"),
    "httpcore": ("31", "7,139", "28, 103", "30 of 429 (6%)", "8%", "7.8%"),
}
"""The same figures of code that we learn from, by this program: `-m tools.measure DIRECTORY`."""
_ROWS: Final = (
    "modules",
    "lines",
    "function length: p90, longest",
    "private functions with one caller",
    "import lines : code",
    "comment lines : code",
)
_CONCURRENT: Final = ("aio", "store", "feeds", "watch", "lease", "execution")
"""Words in the paths of modules where tasks meet: there, what must hold is said in comments."""


@dataclass(frozen=True)
class Module:
    """One source file, counted."""

    path: Path
    lines: int
    code: int
    comments: int
    imports: int
    functions: tuple[int, ...]
    """Lengths."""
    lonely: int
    """Private functions with one caller."""


def read_module(path: Path) -> Module:
    """Count what is in a file."""
    text = path.read_text()
    lines = text.splitlines()
    tree = ast.parse(text)
    docstrings = sum(length for _, length in _docstrings(tree))
    comments = sum(1 for line in lines if line.lstrip().startswith("#"))
    blank = sum(1 for line in lines if not line.strip())
    statements = [each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom)]
    functions = [
        each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    within = dict(_docstrings(tree))
    return Module(
        path=path,
        lines=len(lines),
        code=len(lines) - blank - comments - docstrings,
        comments=comments,
        imports=sum(_length(each) for each in statements),
        functions=tuple(_length(each) - within.get(each, 0) for each in functions),
        lonely=sum(1 for each in functions if _has_one_caller(each.name, text)),
    )


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, int]]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.Module(body=[ast.Expr(value=ast.Constant(value=str())) as first, *_])
                | ast.ClassDef(body=[ast.Expr(value=ast.Constant(value=str())) as first, *_])
                | ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as first, *_])
                | ast.AsyncFunctionDef(
                    body=[ast.Expr(value=ast.Constant(value=str())) as first, *_]
                )
            ):
                yield node, _length(first)
            case _:
                pass


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _has_one_caller(name: str, text: str) -> bool:
    """Whether a private function is mentioned once, by a call; one that a table names is data."""
    is_private = name.startswith("_") and not name.startswith("__")
    is_mentioned_once = is_private and len(re.findall(rf"\b{name}\b", text)) == 2
    return is_mentioned_once and len(re.findall(rf"\b{name}\(", text)) == 2


def figures_of(modules: list[Module]) -> tuple[str, ...]:
    """Return one figure for each row."""
    lengths = sorted(length for module in modules for length in module.functions)
    code = sum(module.code for module in modules)
    lonely = sum(module.lonely for module in modules)
    return (
        f"{len(modules)}",
        f"{sum(module.lines for module in modules):,}",
        f"{lengths[len(lengths) * 9 // 10]}, {lengths[-1]}",
        f"{lonely:,} of {len(lengths):,} ({100 * lonely // len(lengths)}%)",
        f"{100 * sum(module.imports for module in modules) / code:.0f}%",
        f"{100 * sum(module.comments for module in modules) / code:.1f}%",
    )


def main() -> None:
    """Print the table, and where to look first."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src/clusterspace")
    modules = [read_module(path) for path in sorted(root.rglob("*.py"))]
    console = Console()
    table = Table("", root.name, *_ANCHORS, title="The shape of the source")
    for at, (row, ours) in enumerate(zip(_ROWS, figures_of(modules), strict=True)):
        table.add_row(row, ours, *(figures[at] for figures in _ANCHORS.values()))
    console.print(table)
    meeting = [each for each in modules if any(word in str(each.path) for word in _CONCURRENT)]
    if meeting:
        share = 100 * sum(each.comments for each in meeting) / sum(each.code for each in meeting)
        console.print(
            f"where tasks meet ({len(meeting)} modules): comments {share:.1f}% of the code"
        )
    rooms: dict[str, list[Module]] = {}
    for each in modules:
        rooms.setdefault(each.path.relative_to(root).parts[0], []).append(each)
    shown = Table("room", "modules", "lines", "with one caller", title="By room")
    for room, inside in sorted(rooms.items(), key=lambda pair: -len(pair[1])):
        lines = sum(each.lines for each in inside)
        shown.add_row(room, str(len(inside)), f"{lines:,}", str(sum(e.lonely for e in inside)))
    console.print(shown)


if __name__ == "__main__":
    main()
