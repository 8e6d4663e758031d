"""The whole gateway suite with a hostile member in every fleet: nothing else changes.

Each test of the suite asserts what it always asserts. `fleet_site` takes out the one warning that
names the member, and the suite fails if anything else is seen of it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.component.gateway.fleet_site import HOSTILE_KIND

from clusterspace.testing.hostile import KINDS, LISTING_KINDS

ROOT = Path(__file__).resolve().parents[2]
SUITE = "tests/component/gateway"
PATIENCE = 1200.0
VECTORS_OF_TWO = f"{SUITE}/test_resource_versions_page.py"
"""The page spells out vectors of two clusters: a third that lists in good form is part of them."""

ANOTHER_GATEWAY = (
    f"{SUITE}/test_fleet_watches.py::test_a_client_goes_on_at_a_gateway_that_knows_nothing_of_it"
)
"""A gateway that has just started cannot know which versions a member gave to others: it believes
the first 410 of each, and its clients list once more."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_gateway_suite_does_not_notice_a_hostile_member(kind: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", SUITE]
    if kind in LISTING_KINDS:
        command.append(f"--ignore={VECTORS_OF_TWO}")
    if kind == "watch-expired":
        command.append(f"--deselect={ANOTHER_GATEWAY}")

    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, HOSTILE_KIND: kind},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-8000:]
