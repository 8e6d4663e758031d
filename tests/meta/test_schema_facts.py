"""The packed schema facts are what the tool makes of the published schemas."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_packed_schema_facts_are_fresh() -> None:
    tool = ROOT / "tools" / "schema_facts.py"

    checked = subprocess.run(
        [sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False
    )

    assert checked.returncode == 0, checked.stderr
