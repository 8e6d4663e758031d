"""Policies and webhooks on a hub that restarts, on a simulated member, and behind flags."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.admission_policies import (
    Ask,
    Case,
    ask_of,
    check,
    config_map,
    matching,
    new,
    rule,
)

from clusterspace.apiserver.admission.plugins import AdmissionSwitches
from clusterspace.client.connection import Connection
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.errors import UnknownApi, UnknownPlugin
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import HubSettings, read_optional_apis
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.stage import running_sim_member

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
EVERYTHING = matching(rule("*", "*", ["*/*"], ["*"]), namespaceSelector={})
DEAD: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "dead"},
    "webhooks": [
        {
            "name": "dead.example.com",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [rule("*", "*", ["*"], ["*"])],
        }
    ],
}


@asynccontextmanager
async def hub(directory: Path, **settings: Any) -> AsyncGenerator[Connection]:
    given: dict[str, Any] = {"member_cidrs": LOOPBACK, **settings}
    async with running_hub(HubSettings(data_dir=directory, port=0, **given)):
        reached = read_kubeconfig([directory / "kubeconfig"]).settings(cluster="hub")
        async with client_for_test(reached) as client:
            yield client.connection


async def written(connection: Connection, case: Case, namespace: str = "default") -> None:
    for ask in case.objects():
        said = await ask_of(connection, ask, namespace)
        assert said["code"] == 201, said


async def test_a_hub_starts_again_whatever_policies_and_webhooks_say(tmp_path: Path) -> None:
    async with hub(tmp_path) as connection:
        webhook = Ask("POST", f"{ADMISSION}/validatingwebhookconfigurations", DEAD)
        assert (await ask_of(connection, webhook, ""))["code"] == 201
        await written(connection, Case("nothing", check("false"), match=EVERYTHING))

    async with hub(tmp_path) as connection:
        refused = await ask_of(connection, new(), "default")
        assert refused["code"] == 422
        # Policies are taken away whatever they say, then the webhook that nobody answers for.
        for path in (
            "validatingadmissionpolicies/p-nothing",
            "validatingwebhookconfigurations/dead",
        ):
            gone = await ask_of(connection, Ask("DELETE", f"{ADMISSION}/{path}"), "")
            assert gone["code"] == 200
        assert (await ask_of(connection, new(), "default"))["code"] == 201


async def test_a_policy_counts_from_its_answer_on_and_until_it_is_gone(tmp_path: Path) -> None:
    case = Case("now", check("false"), match={"namespaceSelector": {}})
    async with hub(tmp_path, store="memory") as connection:
        for turn in range(5):
            await written(connection, case)
            assert (await ask_of(connection, new(f"a{turn}"), "default"))["code"] == 422
            for plural, name in (
                ("validatingadmissionpolicybindings", "b-now-0"),
                ("validatingadmissionpolicies", "p-now"),
            ):
                await ask_of(connection, Ask("DELETE", f"{ADMISSION}/{plural}/{name}"), "")
            assert (await ask_of(connection, new(f"b{turn}"), "default"))["code"] == 201


async def test_what_policies_note_is_in_the_audit_log(tmp_path: Path) -> None:
    noted = {"auditAnnotations": [{"key": "who", "valueExpression": "request.name + '!'"}]}
    case = Case("noted", noted, match={"namespaceSelector": {}})
    async with hub(tmp_path, store="memory") as connection:
        await written(connection, case)
        await ask_of(connection, new("seen"), "default")

    lines = [json.loads(each) for each in (tmp_path / "audit.log").read_text().splitlines()]
    assert "seen!" in [each.get("annotations", {}).get("p-noted/who") for each in lines]


async def test_no_policy_writes_what_proves_the_audit_log_whole(tmp_path: Path) -> None:
    forged = {"auditAnnotations": [{"key": "torn-before", "valueExpression": "'7'"}]}
    case = Case("forged", forged, match={"namespaceSelector": {}})
    async with hub(tmp_path, store="memory") as connection:
        for ask in case.objects():
            renamed = json.loads(json.dumps(ask.body).replace("p-forged", "audit.clusterspace.io"))
            said = await ask_of(connection, Ask(ask.method, ask.path, renamed), "default")
            assert said["code"] == 201, said
        await ask_of(connection, new("seen"), "default")

    assert "torn-before" not in (tmp_path / "audit.log").read_text()


async def test_a_webhook_is_not_called_where_no_member_may_be(tmp_path: Path) -> None:
    async with hub(tmp_path, store="memory", member_cidrs=()) as connection:
        webhook = Ask("POST", f"{ADMISSION}/validatingwebhookconfigurations", DEAD)
        await ask_of(connection, webhook, "")
        refused = await ask_of(connection, new(), "default")

    assert refused["code"] == 500
    assert "its address is not allowed" in refused["message"]


async def test_plug_ins_are_switched_off_by_kubernetes_names(tmp_path: Path) -> None:
    case = Case("off", check("false"), match={"namespaceSelector": {}})
    switches = AdmissionSwitches(disabled=("ValidatingAdmissionPolicy",))
    async with hub(tmp_path, store="memory", admission=switches) as connection:
        await written(connection, case)
        assert (await ask_of(connection, new(), "default"))["code"] == 201


async def test_what_cannot_be_switched_is_refused_with_what_can(tmp_path: Path) -> None:
    settings = HubSettings(
        data_dir=tmp_path,
        store="memory",
        admission=AdmissionSwitches(disabled=("EscalationGuard",)),
    )
    with pytest.raises(UnknownPlugin, match=r"EscalationGuard cannot be switched.*ResourceQuota"):
        async with running_hub(settings):
            raise AssertionError("it started")
    with pytest.raises(
        UnknownApi, match=r"what can is admissionregistration\.k8s\.io/v1beta1=true"
    ):
        read_optional_apis(["batch/v2alpha1=true"])


async def test_a_simulated_member_obeys_policies_for_shells_too(tmp_path: Path) -> None:
    connecting = matching(rule("", "v1", ["pods/exec"], ["CONNECT"]), namespaceSelector={})
    shells = Case(
        "shells",
        check("!object.command.exists(c, c == 'sh')", messageExpression="string(object.kind)"),
        match=connecting,
    )
    maps = Case("maps", check("object.data.a != '1'"), match={"namespaceSelector": {}})
    async with running_sim_member("lab", tmp_path) as member:
        connection = member.client.connection
        for case in (shells, maps):
            await written(connection, case)
        path = "/api/v1/namespaces/default/pods/none/exec"
        refused = await ask_of(connection, Ask("POST", f"{path}?command=sh&stdin=true"), "default")
        passed = await ask_of(connection, Ask("POST", f"{path}?command=ls"), "default")
        no_map = await ask_of(
            connection,
            Ask("POST", "/api/v1/namespaces/default/configmaps", config_map()),
            "default",
        )

    assert refused["code"] == 422
    assert refused["message"].endswith("denied request: PodExecOptions")
    assert passed["code"] == 404
    assert no_map["code"] == 422
