"""The recorded answers of a kube-apiserver to rules of ours."""

import json
from pathlib import Path
from typing import Any


def recorded(name: str) -> dict[str, Any]:
    """Return one of the recordings beside this file."""
    return json.loads((Path(__file__).parent / "recorded" / f"{name}.json").read_text())


def schema_with(spec: dict[str, Any], *rules: dict[str, Any]) -> dict[str, Any]:
    """Return a schema whose spec has these rules."""
    return {
        "type": "object",
        "properties": {"spec": {**spec, "x-kubernetes-validations": list(rules)}},
    }
