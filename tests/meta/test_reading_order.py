"""A package's docstring is its map: every module is named there, and every name exists."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "clusterspace"
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))


def map_of(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


def members_of(package: Path) -> set[str]:
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    packages = {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    return modules | packages


def has_map(package: Path) -> bool:
    return len(members_of(package)) >= 4 and "\n" in map_of(package)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE.parent)))
def test_every_package_says_what_it_is_for(package: Path) -> None:
    assert map_of(package).strip()


@pytest.mark.parametrize(
    "package", [*filter(has_map, PACKAGES)], ids=lambda path: str(path.relative_to(SOURCE.parent))
)
def test_a_package_map_names_its_modules_and_only_them(package: Path) -> None:
    words = set(re.findall(r"[a-z_0-9]+", map_of(package)))
    files = set(re.findall(r"([a-z_0-9]+)\.py\b", map_of(package)))
    globs = re.findall(r"([a-z_0-9]+_)\*\.py", map_of(package))

    members = members_of(package)
    unnamed = {each for each in members - words if not each.startswith(tuple(globs))}

    assert unnamed == set()
    assert files - {"__init__"} <= members
