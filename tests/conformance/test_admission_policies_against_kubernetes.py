"""Admission policies here and on a real kube-apiserver: the same answers, word by word.

What a kube-apiserver v1.35 answered is recorded beside this file, so that ours is held to it
everywhere; where a kube-apiserver is found, the recording is held to that.
"""

import json
from pathlib import Path
from typing import Any

from tests.conformance.admission_policies import VALIDATING, play

from clusterspace.testing.hubs import client_for_test, hub_for_test, real_server_for_test

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "admission_policies.json").read_text()
)
GATES = (
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
)


def test_every_case_has_a_recorded_answer() -> None:
    assert {case.name for case in VALIDATING} == set(RECORDED)


async def test_the_hub_answers_as_kubernetes_did(tmp_path: Path) -> None:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as client:
        answers = await play(client.connection, VALIDATING)

    assert answers == {name: RECORDED[name] for name in answers}


async def test_kubernetes_answers_as_it_did(tmp_path: Path) -> None:
    async with (
        real_server_for_test(tmp_path, *GATES) as real,
        client_for_test(real.settings) as client,
    ):
        answers = await play(client.connection, VALIDATING)

    assert answers == {name: RECORDED[name] for name in answers}
