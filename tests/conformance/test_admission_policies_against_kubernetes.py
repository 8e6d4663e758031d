"""Admission policies and webhooks here and on a real kube-apiserver: the same, word by word.

What a kube-apiserver v1.35 answered is recorded beside this file, so that ours is held to it
everywhere; where a kube-apiserver is found, the recording is held to that.
"""

import json
from pathlib import Path
from typing import Any

from tests.conformance import admission_policies, admission_webhooks
from tests.conformance.admission_policies import MUTATING, VALIDATING
from tests.conformance.admission_webhooks import WEBHOOKS

from clusterspace.client.connection import Connection
from clusterspace.testing.hubs import client_for_test, hub_for_test, real_server_for_test

HERE = Path(__file__).parent
BETA = frozenset({"admissionregistration.k8s.io/v1beta1"})
GATES = (
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
)


async def different_answers(connection: Connection) -> dict[str, Any]:
    """Play every case; return what was answered and recorded where the two differ."""
    answers = {
        "policies": {
            **await admission_policies.play(connection, VALIDATING),
            **await admission_policies.play(connection, MUTATING),
        },
        "webhooks": await admission_webhooks.play(connection, WEBHOOKS),
    }
    different: dict[str, Any] = {}
    for group, found in answers.items():
        expected = json.loads((HERE / f"admission_{group}.json").read_text())
        for name in expected.keys() | found.keys():
            if found.get(name) != expected.get(name):
                different[name] = {"answered": found.get(name), "recorded": expected.get(name)}
    return different


async def test_the_hub_answers_as_kubernetes_did(tmp_path: Path) -> None:
    async with (
        hub_for_test(tmp_path, optional_apis=BETA) as settings,
        client_for_test(settings) as client,
    ):
        assert await different_answers(client.connection) == {}


async def test_kubernetes_answers_as_it_did(tmp_path: Path) -> None:
    async with (
        real_server_for_test(tmp_path, *GATES) as real,
        client_for_test(real.settings) as client,
    ):
        assert await different_answers(client.connection) == {}
