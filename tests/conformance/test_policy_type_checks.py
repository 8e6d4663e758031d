"""What type checks of policies say, here and by a real kube-controller-manager."""

from pathlib import Path
from typing import Any

import msgspec
from tests.conformance.admission_policies import Ask, Case, ask_of, check, matching, rule

from clusterspace.client.connection import Connection
from clusterspace.client.requests import ApiRequest
from clusterspace.testing.hubs import (
    client_for_test,
    hub_for_test,
    real_controllers_for_test,
    real_server_for_test,
)
from clusterspace.testing.steps import until

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
ON = matching(
    rule("apps", "v1", ["deployments"], ["CREATE"]), rule("", "v1", ["configmaps"], ["CREATE"])
)
ON_APPS = matching(rule("apps", "v1", ["deployments", "replicasets"], ["CREATE"]))


def warned(field: str, *warnings: str) -> dict[str, Any]:
    return {"fieldRef": f"spec.validations[0].{field}", "warning": "\n".join(warnings)}


CASES: list[tuple[Case, list[dict[str, Any]]]] = [
    (Case("fits", check("object.spec.replicas < 3"), match=ON_APPS, bindings=[]), []),
    (
        Case("misspelt", check("object.spec.replica < 3"), match=ON_APPS, bindings=[]),
        [
            warned(
                "expression",
                *(
                    f"apps/v1, Kind={kind}: ERROR: <input>:1:12: undefined field 'replica'\n"
                    " | object.spec.replica < 3\n | ...........^\n"
                    for kind in ("Deployment", "ReplicaSet")
                ),
            )
        ],
    ),
    (
        Case("one-of-two", check("object.data.a == 'x'"), match=ON, bindings=[]),
        [
            warned(
                "expression",
                "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'data'\n"
                " | object.data.a == 'x'\n | ......^\n",
            )
        ],
    ),
    (
        Case(
            "message",
            check("true", messageExpression="object.spec.replicas + ''"),
            match=ON_APPS,
            bindings=[],
        ),
        [
            warned(
                "messageExpression",
                *(
                    f"apps/v1, Kind={kind}: ERROR: <input>:1:22: found no matching overload for "
                    "'_+_' applied to '(int, string)'\n | object.spec.replicas + ''\n"
                    " | .....................^\n"
                    for kind in ("Deployment", "ReplicaSet")
                ),
            )
        ],
    ),
]


async def _found(connection: Connection) -> list[Any]:
    """Return what was found of every case, once everything has been looked at."""
    for case, _ in CASES:
        (written,) = case.objects()
        assert isinstance(written, Ask)
        said = await ask_of(connection, written, case.namespace)
        assert said["code"] == 201, said
    found: list[Any] = []
    for case, _ in CASES:
        status: dict[str, Any] = {}

        async def is_checked(name: str = f"p-{case.name}", into: Any = status) -> bool:
            answer = await connection.ask(ApiRequest("GET", f"{POLICIES}/{name}"))
            into.clear()
            into.update(msgspec.json.decode(answer.body).get("status") or {})
            return into.get("observedGeneration") == 1 and "typeChecking" in into

        await until(is_checked)
        found.append(status["typeChecking"].get("expressionWarnings", []))
    return found


async def test_the_hub_checks_types(tmp_path: Path) -> None:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as client:
        assert await _found(client.connection) == [expected for _, expected in CASES]


async def test_kubernetes_says_the_same(tmp_path: Path) -> None:
    async with (
        real_server_for_test(tmp_path) as real,
        real_controllers_for_test(real, tmp_path, "validatingadmissionpolicy-status-controller"),
        client_for_test(real.settings) as client,
    ):
        assert await _found(client.connection) == [expected for _, expected in CASES]
