"""Where the recorded answers of real systems are, and how tests read them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest


def corpus_dir() -> Path:
    """Return the folder of recordings; skip the asking test, by name, where there is none."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "corpus"
    found = Path(os.environ.get("CLUSTERSPACE_CORPUS", beside))
    if not found.is_dir():
        pytest.skip("recordings not found: set CLUSTERSPACE_CORPUS to the corpus folder")
    return found


def load_scenario(group: str, name: str) -> dict[str, Any]:
    """Return one recorded scenario, such as ("apiserver", "json_patch")."""
    return json.loads((corpus_dir() / group / f"{name}.json").read_text())
