"""Customizations for kinds of other projects, with what karmadactl interpret says of them.

The scripts are ours, written from the fields of those kinds; the answers in `recorded.json` are
Karmada's. RECORD=1 writes them anew, where KARMADA_ASSETS has a karmadactl; with one and without
RECORD, it is asked whether they still hold.
"""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from clusterspace.fleet.interpretation.customizations import OPERATIONS
from clusterspace.fleet.interpretation.lua_workers import LuaWorker
from clusterspace.kube.objects import Object
from clusterspace.roots.interpretation import Given, arguments_for

DIRECTORY = Path(__file__).parents[1] / "corpus" / "interpretations"
RECORDED = DIRECTORY / "recorded.json"
BY_NAME = {each.name: each for each in OPERATIONS}


def cases() -> Iterator[tuple[str, Object, Object]]:
    """Return each case with what it is called, and the customization that it asks."""
    for file in sorted(DIRECTORY.glob("*.yaml")):
        written = yaml.safe_load(file.read_text())
        for number, case in enumerate(written["cases"]):
            name = f"{file.stem}/{number}-{case['operation']}"
            yield name, written["customization"], case


CASES = list(cases())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker() -> AsyncIterator[LuaWorker]:
    # What is shown is what they say; how long they may take is shown elsewhere.
    made = LuaWorker(answer_seconds=60)
    yield made
    await made.close()


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return json.loads(RECORDED.read_text())


def without_empties(value: Any) -> Any:
    """Return a value without what is empty: of a status, karmadactl drops some of it."""
    if isinstance(value, dict):
        mended = {key: without_empties(each) for key, each in value.items()}
        return {key: each for key, each in mended.items() if each not in ({}, [], None)}
    if isinstance(value, list):
        return [without_empties(each) for each in value]
    return value


def test_every_operation_is_asked() -> None:
    assert {case["operation"] for _, _, case in CASES} == set(BY_NAME)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("name", "customization", "case"), CASES, ids=[name for name, _, _ in CASES]
)
async def test_a_script_says_what_it_says_in_karmada(
    worker: LuaWorker, recorded: dict[str, Any], name: str, customization: Object, case: Object
) -> None:
    operation = BY_NAME[case["operation"]]
    given = Given(
        case.get("desired"),
        case.get("observed"),
        tuple(case.get("statuses", ())),
        case.get("replica", 0),
    )

    script = operation.script_in(customization)
    said = await operation.run(worker, script, *arguments_for(operation, given))

    assert without_empties(list(said)) == without_empties(recorded[name])


def test_karmadactl_says_what_was_recorded(tmp_path: Path) -> None:
    program = Path(os.environ.get("KARMADA_ASSETS", "")) / "karmadactl"
    if "KARMADA_ASSETS" not in os.environ or not program.exists():
        pytest.skip("no karmadactl: set KARMADA_ASSETS to where Karmada's programs are")
    answers = {name: asked_of(program, tmp_path, *rest) for name, *rest in CASES}
    if os.environ.get("RECORD"):
        RECORDED.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
    assert answers == json.loads(RECORDED.read_text())


def asked_of(program: Path, directory: Path, customization: Object, case: Object) -> list[Any]:
    """Return what karmadactl says of a case, a value for each of its results."""
    operation = case["operation"]
    flags = {
        "-f": [customization],
        "--desired-file": [case["desired"]] if "desired" in case else [],
        "--observed-file": [case["observed"]] if "observed" in case else [],
        "--status-file": case.get("statuses", []),
    }
    words = ["--operation", operation[0].lower() + operation[1:]]
    for flag, documents in flags.items():
        if documents:
            file = directory / flag.strip("-")
            file.write_text(yaml.safe_dump_all(documents))
            words += [flag, str(file)]
    if "replica" in case:
        words += ["--desired-replica", str(case["replica"])]
    done = subprocess.run(
        [program, "interpret", *words], check=True, capture_output=True, text=True, timeout=60
    )
    return list(yaml.safe_load_all(done.stdout))
