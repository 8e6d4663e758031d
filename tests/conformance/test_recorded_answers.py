"""The recorded answers of a real kube-apiserver, beside the hub's answers to the same requests."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.conformance.hubs import ADMIN_TOKEN, VIEWER_TOKEN, RunningHub
from tests.corpus import corpus_dir

WANTED: Final = {"status": 0.98, "shape": 0.92, "message": 0.80}
"""The share of the exchanges that must be alike, level by level."""


def find_replayer() -> Path:
    """Return the tool that stands beside the recordings; skip, by name, where it does not."""
    found = corpus_dir().parent / "tools" / "replay.py"
    if not found.is_file():
        pytest.skip(f"the replay tool is not beside the recordings: no {found.name}")
    return found


def test_recorded_requests_get_the_recorded_answers(hub: RunningHub, tmp_path: Path) -> None:
    recordings = corpus_dir() / "apiserver"
    scenarios = sorted(file.stem for file in recordings.glob("*.json"))
    counts = tmp_path / "counts.json"
    command = [sys.executable, str(find_replayer()), str(recordings), "--server", hub.url]
    command += ["--token", f"admin={ADMIN_TOKEN}", "--token", f"viewer-token={VIEWER_TOKEN}"]
    command += ["--ca", str(hub.authority), "--only", ",".join(scenarios), "--json", str(counts)]

    replayed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)

    print(replayed.stdout, replayed.stderr)
    counted = json.loads(counts.read_text())
    shares = {level: counted[level] / counted["steps"] for level in WANTED}
    assert {level: share for level, share in shares.items() if share < WANTED[level]} == {}
