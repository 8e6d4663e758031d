"""Recorded answers of real systems, and how tests read them.

README.md beside this file says what was recorded from what.
"""

import json
from pathlib import Path
from typing import Any


def corpus_dir() -> Path:
    """Return the folder of recordings."""
    return Path(__file__).resolve().parent


def load_scenario(group: str, name: str) -> dict[str, Any]:
    """Return one recorded scenario, such as ("apiserver", "json_patch")."""
    return json.loads((corpus_dir() / group / f"{name}.json").read_text())
