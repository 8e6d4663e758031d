"""`doctor --production` finds each thing a review would ask for, and says so when it is mended."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.component.gateway.fleet_site import fleet_site

from clusterspace.aio.clocks import SystemClock
from clusterspace.cli.main import main
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.clients import hub_settings, open_client
from clusterspace.roots.hub import running_hub
from clusterspace.roots.local.doctor import Finding, Severity
from clusterspace.roots.local.production import (
    ProductionFiles,
    examine_backups,
    examine_files,
    examine_flags,
    examine_fleet_flags,
    examine_production,
)
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.builders import NAMESPACES, SECRETS
from clusterspace.testing.steps import delete, edit

RBAC, ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
WELL = {
    "encryption-provider-config": "keys.yaml",
    "audit-policy-file": "policy.yaml",
    "audit-log-key-file": "keys",
    "enable-priority-and-fairness": "true",
    "host": "10.0.0.7",
    "token-auth-file": "",
}


def states(findings: "list[Finding]") -> dict[str, str]:
    return {each.subject: each.severity.value for each in findings}


@pytest.mark.parametrize(
    ("flag", "value", "subject", "state"),
    [
        ("encryption-provider-config", "", "encryption", "bad"),
        ("audit-policy-file", "", "audit policy", "bad"),
        ("audit-log-key-file", "", "audit log", "bad"),
        ("enable-priority-and-fairness", "false", "fairness", "bad"),
        ("host", "0.0.0.0", "addresses", "bad"),
        ("allow-member-cidrs", "127.0.0.0/8", "addresses", "warning"),
        ("token-auth-file", "tokens.csv", "static tokens", "bad"),
        ("accept-karmada-agents", "true", "karmada agents", "warning"),
    ],
)
def test_a_setting_that_is_missing_is_found_and_one_that_is_there_is_not(
    flag: str, value: str, subject: str, state: str
) -> None:
    assert set(states(list(examine_flags(WELL))).values()) == {"ok"}

    found = list(examine_flags({**WELL, flag: value}))

    assert {k: v for k, v in states(found).items() if v != "ok"} == {subject: state}
    assert all(each.advice for each in found if each.severity is not Severity.OK)


FLEET_WELL = {
    "audit-policy-file": "policy.yaml",
    "audit-log-key-file": "keys",
    "enable-priority-and-fairness": "true",
    "host": "10.0.0.7",
    "impersonate-masters": "false",
    "bulk-delete-members": "false",
    "insecure-skip-tls-verify": "false",
}


@pytest.mark.parametrize(
    ("flag", "value", "subject", "state"),
    [
        ("audit-policy-file", "", "fleet audit policy", "bad"),
        ("audit-log-key-file", "", "fleet audit log", "bad"),
        ("enable-priority-and-fairness", "false", "fleet fairness", "bad"),
        ("host", "::", "fleet addresses", "bad"),
        ("allow-member-cidrs", "127.0.0.0/8", "fleet addresses", "warning"),
        ("impersonate-masters", "true", "fleet masters", "warning"),
        ("bulk-delete-members", "true", "fleet deletes", "warning"),
        ("insecure-skip-tls-verify", "true", "fleet hub", "bad"),
    ],
)
def test_a_setting_of_the_fleet_address_that_is_missing_is_found(
    flag: str, value: str, subject: str, state: str
) -> None:
    assert set(states(list(examine_fleet_flags(FLEET_WELL))).values()) == {"ok"}

    found = list(examine_fleet_flags({**FLEET_WELL, flag: value}))

    assert {k: v for k, v in states(found).items() if v != "ok"} == {subject: state}
    for each in found:
        assert each.severity is Severity.OK or each.advice
        assert "clusterspace hub" not in each.advice, "it is the other server that is to be mended"


async def test_the_fleet_address_is_asked_for_its_own_settings(tmp_path: Path) -> None:
    async with fleet_site(tmp_path, members=()) as site:
        authority = Trust(Pem((tmp_path / site.data_name / "pki" / "ca.crt").read_bytes()))
        hub = site.hub.settings
        root, jane = (
            ConnectionSettings("fleet", site.url, authority, AuthInfo(token=f"{who}-token"))
            for who in ("root", "jane")
        )
        async with (
            open_client(replace(hub, identity=AuthInfo(token="root-token"))) as at_hub,
            open_client(root) as at_fleet,
            open_client(jane) as stranger,
        ):
            files = ProductionFiles()
            found = [e async for e in examine_production(at_hub, files, SystemClock(), at_fleet)]
            refused = [e async for e in examine_production(at_hub, files, SystemClock(), stranger)]
            unseen = [e async for e in examine_production(at_hub, files, SystemClock())]

    said = {each.subject: each for each in found}
    assert said["fleet audit policy"].severity is Severity.BAD
    assert "clusterspace fleet --audit-policy-file" in said["fleet audit policy"].advice
    assert said["fleet masters"].severity is Severity.WARNING, "the site has masters travel"
    assert said["fleet hub"].severity is Severity.OK
    (fleet,) = (each for each in refused if each.subject.startswith("fleet"))
    assert fleet.severity is Severity.BAD
    assert "forbidden" in fleet.seen
    (fleet,) = (each for each in unseen if each.subject.startswith("fleet"))
    assert fleet.severity is Severity.WARNING


def test_files_that_others_read_are_found_until_they_cannot(tmp_path: Path) -> None:
    key = tmp_path / "pki" / "ca.key"
    key.parent.mkdir()
    key.touch(0o644)
    files = ProductionFiles(data_dir=tmp_path)
    (found,) = examine_files(files)
    assert (found.severity, found.advice) == (Severity.BAD, f"chmod go= {key}")

    key.chmod(0o600)
    (found,) = examine_files(files)
    assert found.severity is Severity.OK


def test_backups_are_missed_found_old_and_found_well(tmp_path: Path) -> None:
    files = ProductionFiles(tmp_path / "hub", tmp_path / "backups")
    (found,) = examine_backups(files, SystemClock())
    assert "no backup" in found.seen
    assert f"clusterspace store backup {tmp_path / 'backups'}/" in found.advice

    (tmp_path / "backups").mkdir()
    copy = tmp_path / "backups" / "one.db"
    copy.touch()
    os.utime(copy, (0, 0))
    (found,) = examine_backups(files, SystemClock())
    assert "hours old" in found.seen

    copy.touch()
    (found,) = examine_backups(files, SystemClock())
    assert found.severity is Severity.OK


@asynccontextmanager
async def hub(tmp_path: Path) -> AsyncGenerator[ClusterClient]:
    settings = HubSettings(tmp_path / "hub", store="memory")
    async with (
        running_hub(settings) as running,
        open_client(hub_settings(running.installation.kubeconfig)) as client,
    ):
        yield client


async def examined(client: ClusterClient, tmp_path: Path) -> dict[str, Finding]:
    files = ProductionFiles(tmp_path / "hub", tmp_path / "backups")
    found = examine_production(client, files, SystemClock())
    return {each.subject: each async for each in found}


def made(group: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    version = f"{group}/v1" if group else "v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def bound(name: str, role: str, subject: Mapping[str, str]) -> dict[str, Any]:
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
    who = {"apiGroup": RBAC, **subject}
    return made(RBAC, "ClusterRoleBinding", name, roleRef=reference, subjects=[who])


WEBHOOK = {
    "name": "w.example.com",
    "failurePolicy": "Ignore",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"url": "https://192.0.2.7/"},
    "rules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["secrets"],
            "operations": ["CREATE"],
        }
    ],
}
BAD: dict[str, tuple[GroupVersionResource, str, dict[str, Any]]] = {
    "tokens": (
        SECRETS,
        "default",
        made("", "Secret", "endless", type="bootstrap.kubernetes.io/token"),
    ),
    "wildcards": (
        GroupVersionResource(RBAC, "v1", "clusterroles"),
        "",
        made(RBAC, "ClusterRole", "all",
             rules=[{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
    ),
    "anonymous access": (
        GroupVersionResource(RBAC, "v1", "clusterrolebindings"),
        "",
        bound("strangers", "view", {"kind": "User", "name": "system:anonymous"}),
    ),
    "masters": (
        GroupVersionResource(RBAC, "v1", "clusterrolebindings"),
        "",
        bound("everybody", "cluster-admin", {"kind": "Group", "name": "system:authenticated"}),
    ),
    "webhooks": (
        GroupVersionResource(ADMISSION, "v1", "validatingwebhookconfigurations"),
        "",
        made(ADMISSION, "ValidatingWebhookConfiguration", "lenient", webhooks=[WEBHOOK]),
    ),
    "pod security": (NAMESPACES, "", made("", "Namespace", "lax")),
}  # fmt: skip


def enforced(namespace: Object) -> Object:
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    return {**namespace, "metadata": {**namespace["metadata"], "labels": labels}}


async def test_objects_that_a_review_asks_about_are_found_until_they_are_mended(
    tmp_path: Path,
) -> None:
    async with hub(tmp_path) as client:
        default = ResourcePath(NAMESPACES, name="default")
        await edit(client, default, enforced)
        before = await examined(client, tmp_path)
        assert [before[each].severity for each in BAD] == [Severity.OK] * len(BAD)

        for subject, (resource, namespace, body) in BAD.items():
            name = body["metadata"]["name"]
            await client.create(ResourcePath(resource, namespace), body)
            found = (await examined(client, tmp_path))[subject]
            assert found.severity is Severity.BAD, subject
            assert name in found.seen
            assert name in found.advice
            if subject == "pod security":
                place = ResourcePath(resource, name=name)
                await edit(client, place, enforced)
            else:
                await delete(client, ResourcePath(resource, namespace, name))
            assert (await examined(client, tmp_path))[subject].severity is Severity.OK

        assert before["you"].severity is Severity.WARNING
        for each in ("certificates", "clock", "versions", "files", "fairness", "addresses"):
            assert before[each].severity is Severity.OK, before[each]


async def test_the_command_shows_a_table_and_ends_with_one(tmp_path: Path) -> None:
    async with hub(tmp_path):
        words = ["doctor", "--production", "--data-dir", str(tmp_path)]
        shown = await asyncio.to_thread(CliRunner().invoke, main, words)
        told = await asyncio.to_thread(CliRunner().invoke, main, [*words, "-o", "json"])

    assert shown.exit_code == 1
    assert "encryption" in shown.output
    document = json.loads(told.output)
    assert document["isWell"] is False
    assert {"subject", "severity", "seen", "advice"} <= document["findings"][0].keys()


async def test_what_cannot_be_asked_is_missing_and_settings_are_not_for_everybody(
    tmp_path: Path,
) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("jane-token,jane,u-jane\n")
    settings = HubSettings(tmp_path / "hub", store="memory", token_auth_file=tokens)
    async with running_hub(settings) as running:
        admin = hub_settings(running.installation.kubeconfig)
        jane = ConnectionSettings("hub", admin.server, admin.trust, AuthInfo(token="jane-token"))
        async with open_client(jane) as client:
            found = await examined(client, tmp_path)

    assert "forbidden" in found["settings"].seen
    assert "encryption" not in found
    for each in ("settings", "tokens", "roles", "bindings", "webhooks", "namespaces"):
        assert found[each].severity is Severity.BAD, each
    assert found["you"].seen.startswith("you are jane")
