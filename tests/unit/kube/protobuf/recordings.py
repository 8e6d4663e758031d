"""The recorded protobuf bodies of real programs, and the JSON they stand for."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "recorded"


@dataclass(frozen=True, slots=True)
class Recording:
    title: str
    body: bytes
    expected: Any


def load_recordings(name: str) -> list[Recording]:
    return [
        Recording(
            title=entry.get("command") or entry["path"],
            body=base64.b64decode(entry["body"]),
            expected=entry.get("expected"),
        )
        for entry in json.loads((_FOLDER / f"{name}.json").read_text())
    ]


KUBECTL = load_recordings("kubectl")
APISERVER = load_recordings("apiserver")
EVERYTHING = [*KUBECTL, *APISERVER]
