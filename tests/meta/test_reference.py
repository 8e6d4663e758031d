"""The reference pages are what the code says: every command, flag, metric, condition, reason."""

import re
from pathlib import Path

import pytest
from tools.reference.__main__ import PAGES, stale_pages
from tools.reference.condition_sites import Indirect, find_sites
from tools.reference.metrics_page import find_metrics

from clusterspace.cli.main import main
from clusterspace.cli.settings import CommandPath

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


def test_the_reference_pages_are_fresh() -> None:
    assert stale_pages() == []


def test_every_page_of_the_reference_is_made_or_written_down() -> None:
    assert {each.name for each in REFERENCE.glob("*.md")} >= PAGES.keys()


def test_every_command_and_option_is_documented() -> None:
    text = page("cli.md")
    paths = list(CommandPath((), main).below())
    variables = {each.variable for path in paths for each in path.settings()}

    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) == {
        " ".join(path.verbs) for path in paths
    }
    assert set(re.findall(r"\| `(CLUSTERSPACE_\w+)` \|", text)) == variables


def test_every_metric_is_documented() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", page("metrics.md"), re.MULTILINE))

    assert documented == {each.name for each in find_metrics()}


def test_a_reason_that_cannot_be_followed_is_reported() -> None:
    """Otherwise a new one could hide behind a variable."""
    unknown = {(site.module, each) for site in find_sites({}) for each in site.unknown}

    assert ("clusterspace.fleet.membership.status", "reason") in unknown


def test_a_reason_said_to_be_in_a_module_must_be_there() -> None:
    indirect: Indirect = {("clusterspace.fleet.membership.status", "reason"): ("ClusterReady",)}

    with pytest.raises(LookupError, match="has no text 'ClusterReady'"):
        find_sites(indirect)


def test_conditions_made_by_a_function_are_found_at_its_calls() -> None:
    found = {
        (kind, reason)
        for site in find_sites({})
        if site.module == "clusterspace.apiserver.identity.certificates.signer"
        for kind in site.types
        for reason in site.reasons
    }

    assert found == {
        ("Approved", "AutoApproved"),
        ("Denied", "NotAllowed"),
        ("Failed", "SignerValidationFailure"),
    }
