"""What a quick command may cost: modules, which are the same everywhere, not milliseconds."""

import subprocess
import sys

import pytest

HEAVY = (
    "aiohttp",
    "apsw",
    "asyncio",
    "cryptography",
    "msgspec",
    "rich",
    "structlog",
    "uvloop",
    "yaml",
)
MOST_MODULES = 145
"""124 with Python 3.11; others bring a few more of their own."""

REPORT = """
import sys
from clusterspace.cli.main import main
try:
    main(sys.argv[1:], prog_name="clusterspace")
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def modules_of(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", REPORT, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    imported = modules_of(*arguments)

    assert imported.isdisjoint(HEAVY)
    assert len(imported) <= MOST_MODULES


@pytest.mark.parametrize("verb", ["hub", "join", "clusters", "up", "why", "completion"])
def test_the_help_of_a_verb_imports_no_part_of_the_product(verb: str) -> None:
    imported = modules_of(verb, "--help")

    assert imported.isdisjoint(set(HEAVY) - {"asyncio"})
    ours = {each for each in imported if each.startswith("clusterspace.")}
    assert {each.split(".")[1] for each in ours} <= {"cli", "errors"}
