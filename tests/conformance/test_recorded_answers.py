"""The recorded answers of a real kube-apiserver, beside the hub's answers to the same requests."""

import json
from typing import Final

from tests.conformance.hubs import ADMIN_TOKEN, VIEWER_TOKEN, RunningHub
from tests.conformance.replaying import LEVELS, Replay
from tests.corpus import corpus_dir

WANTED: Final = {"status": 0.99, "shape": 0.97, "message": 0.97}
"""The share of the exchanges that must be alike, level by level."""

_TOKENS: Final = {"admin": ADMIN_TOKEN, "viewer-token": VIEWER_TOKEN}


def test_recorded_requests_get_the_recorded_answers(hub: RunningHub) -> None:
    outcomes = [
        outcome
        for file in sorted((corpus_dir() / "apiserver").glob("*.json"))
        for outcome in Replay(hub.url, str(hub.authority), _TOKENS).run(
            json.loads(file.read_text())
        )
    ]

    for outcome in outcomes:
        if outcome.why:
            print(f"{outcome.what}\n    {outcome.why}")
    assert len(outcomes) == 278
    shares = {
        level: sum(each.reaches(level) for each in outcomes) / len(outcomes) for level in LEVELS
    }
    print(shares)
    assert {level: share for level, share in shares.items() if share < WANTED[level]} == {}
