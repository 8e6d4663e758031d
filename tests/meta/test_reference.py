"""The reference pages are what the code says: every command, flag, metric, condition, reason."""

import re
from pathlib import Path

import pytest
from tools.reference.__main__ import PAGES, stale_pages
from tools.reference.api_meanings import ACTED_ON, FIELDS, LEFT_OUT
from tools.reference.api_page import acts, fields_of, group_kind_of, unheeded_of
from tools.reference.condition_sites import Indirect, find_sites
from tools.reference.metrics_page import find_metrics

from clusterspace.apis.crds import definitions
from clusterspace.apiserver.admission import unenforced
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


def test_every_kind_of_ours_is_documented_with_who_acts_on_it() -> None:
    known = {group_kind_of(each) for each in definitions()}
    index = page("api.md").partition("## All kinds")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \[?(\w+)\]?[^|]* \| ([\w.-]+) \|", index, re.MULTILINE)

    assert {(group, kind) for kind, group in rows} - {("group", "kind")} == known
    assert all(acts(each) for each in known)
    assert ACTED_ON.keys() == FIELDS.keys()


def test_fields_that_the_page_explains_exist() -> None:
    paths = {
        group_kind_of(each): {field.plain_path for field in fields_of(each)}
        for each in definitions()
    }
    explained = [*FIELDS.items(), *LEFT_OUT.items()]
    gone = {key: set(fields) - paths[key] for key, fields in explained if set(fields) - paths[key]}

    assert gone == {}


def test_a_field_that_a_write_warns_of_is_marked_on_the_page() -> None:
    text = page("api.md")

    for key, fields in unenforced.FIELDS.items():
        assert unheeded_of(key).keys() >= {".".join(each.path) for each in fields}
        for each in fields:
            assert f"{each.consequence}." in text


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
