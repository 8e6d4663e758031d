"""Secrets and service accounts, as a real API server answered them."""

from pathlib import Path
from typing import Any

import pytest
from tests.component.identity_hub import IdentityHub, running_identity_hub
from tests.corpus import load_scenario

VOLATILE = ("uid", "resourceVersion", "creationTimestamp", "time", "token", "expirationTimestamp")


def stable(value: Any) -> Any:
    """Return an answer without what differs from run to run."""
    if isinstance(value, dict):
        return {key: "*" if key in VOLATILE else stable(held) for key, held in value.items()}
    if isinstance(value, list):
        return [stable(each) for each in value]
    return value


async def replay(hub: IdentityHub, step: dict[str, Any]) -> tuple[int, Any]:
    request = step.get("request") or step["setup"]
    answer = await hub.ask(
        request["method"],
        request["path"] + "?fieldManager=recorder",
        request.get("body"),
        token="root-token",
        content_type=request["contentType"],
    )
    return answer.code, stable(answer.body)


async def test_secrets_and_service_accounts_answer_as_recorded(tmp_path: Path):
    steps = load_scenario("apiserver", "secrets_and_service_accounts")["steps"]
    async with running_identity_hub(tmp_path) as hub:
        answers = [await replay(hub, step) for step in steps]

    recorded = [step["response"] for step in steps if "response" in step]
    answered = [given for step, given in zip(steps, answers, strict=True) if "response" in step]
    if not recorded:
        pytest.fail("the recording has no answers")
    assert answered == [(each["status"], stable(each["body"])) for each in recorded]
