"""The pages on compatibility say what the code does, for every kind there is."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clusterspace.apis.crds import definition
from clusterspace.apiserver.admission.unenforced import FIELDS, KINDS
from clusterspace.apiserver.kubernetes_hub.promises import PROMISES, SHORTFALLS
from clusterspace.builtins.resource_model import Persistence
from clusterspace.builtins.resources import all_resources

DOCS = Path(__file__).resolve().parents[2] / "docs"


def section(title: str, page: str = "kubernetes-compatibility.md") -> str:
    text = (DOCS / page).read_text()
    found = re.search(rf"^##+ {title}\n(.*?)(?=^##+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def kinds_in(text: str) -> set[str]:
    return set(re.findall(r"\b[A-Z][A-Za-z]+\b", text))


def test_the_page_lists_what_is_not_enforced_as_the_code_does() -> None:
    rows = [f"| {kind} | {row.consequence} | {row.instead} |" for (_, kind), row in KINDS.items()]

    listed = [line for line in section("Stored, not enforced").splitlines() if line[:1] == "|"]

    assert listed[2:] == rows


def test_the_page_lists_fields_of_policies_that_nothing_acts_on_as_the_code_does() -> None:
    (fields,) = {each for (group, _), each in FIELDS.items() if group == "policy.karmada.io"}
    rows = [f"| `{each.field}` | {each.consequence} |" for each in fields]

    lines = section("Stored, not acted on", "karmada-compatibility.md").splitlines()

    assert [line for line in lines if line[:1] == "|"][2:] == rows


def test_the_page_lists_every_field_of_a_registry_and_what_becomes_of_it() -> None:
    spec = definition("resourceregistries", "search.karmada.io")["spec"]
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    (warned,) = FIELDS["search.karmada.io", "ResourceRegistry"]

    text = section("ResourceRegistry", "karmada-compatibility.md")
    rows = dict(re.findall(r"^\| `(spec\.[\w.]+)` \| (\w+)", text, re.MULTILINE))

    def leaves(of: dict[str, Any], path: str) -> Iterator[str]:
        below = of.get("items", of).get("properties")
        if path in rows or not below:
            yield path
        else:
            for name, each in below.items():
                yield from leaves(each, f"{path}.{name}")

    assert set(leaves(schema, "spec")) == set(rows)
    assert rows[warned.field] == "warned"
    assert f"| {warned.consequence} |" in text


def test_every_stored_kind_is_on_the_page_and_says_where_it_acts() -> None:
    stored = {each.info.kind for each in all_resources() if each.persistence is Persistence.STORED}
    acting, placed = kinds_in(section("Acting on the hub")), kinds_in(section("Acting on members"))
    unenforced = {kind for _, kind in KINDS}

    assert stored - acting - placed - unenforced == set()
    assert acting & placed & stored == set()
    assert (acting | placed) & unenforced == set()


def test_every_kind_that_is_warned_of_is_served() -> None:
    served = {(each.info.group, each.info.kind) for each in all_resources()}

    assert KINDS.keys() <= served


def test_the_page_on_a_kube_apiserver_as_the_hub_says_what_doctor_says() -> None:
    def quoted(names: tuple[str, ...]) -> str:
        return ", ".join(f"`{each}`" for each in names)

    promises = [
        f"| {each.rule} | {each.says} | {quoted(each.webhooks)} | {quoted(each.policies)} |"
        for each in PROMISES
    ]
    shortfalls = [f"| {each.rule} | {each.says} |" for each in SHORTFALLS]

    lines = section("What holds there", "guides/kubernetes-hub.md").splitlines()
    rows = [line.replace("|  |", "| |") for line in lines if line[:1] == "|"]

    wanted = [line.replace("|  |", "| |") for line in (*promises, *shortfalls)]
    assert [row for row in rows if not row.startswith(("| rule |", "|---"))] == wanted
