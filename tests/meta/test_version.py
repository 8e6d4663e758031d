"""The version of the package and the changelog agree."""

import re
from pathlib import Path

from clusterspace import __version__

ROOT = Path(__file__).resolve().parents[2]
HEADING = re.compile(
    r"^## (?:\[?(?P<version>\d+\.\d+\.\d+)\]?(?: - \d{4}-\d\d-\d\d)?|Unreleased)$", re.MULTILINE
)


def released() -> list[str]:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == len(HEADING.findall(text))
    return [found["version"] for found in HEADING.finditer(text) if found["version"]]


def test_the_version_is_the_latest_release_or_the_one_to_come() -> None:
    latest = released()[:1] or [__version__]

    assert [int(each) for each in __version__.split(".")] >= [int(p) for p in latest[0].split(".")]


def test_releases_are_listed_newest_first() -> None:
    numbers = [tuple(map(int, each.split("."))) for each in released()]

    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) == len(numbers)


def test_what_is_not_released_yet_has_a_heading_of_its_own() -> None:
    first = HEADING.search((ROOT / "CHANGELOG.md").read_text())

    assert first is not None
    assert first["version"] in (None, __version__)
