"""A hub with an audit policy writes kube-apiserver's events, and chains them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.component.audit_lines import wait_written
from tests.component.gateway.watch_streams import watching

from clusterspace.apiserver.access.audit_chain import files_of, verify
from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.errors import UnusableConfiguration
from clusterspace.roots.clients import hub_settings, open_client
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.builders import config_map

MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
WORD = "c2VjcmV0LXdvcmQ="

POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: None
  userGroups: ["system:clusterspace"]
- level: RequestResponse
  verbs: [create]
  resources: [{group: "", resources: [configmaps]}]
  omitStages: [RequestReceived]
  omitManagedFields: true
- level: Metadata
  verbs: [get, watch, delete]
  resources: [{group: "", resources: [configmaps]}]
- level: RequestResponse
  namespaces: [default]
  omitStages: [RequestReceived]
"""


def written(tmp_path: Path, policy: str = POLICY) -> HubSettings:
    file = tmp_path / "policy.yaml"
    file.write_text(policy)
    log = tmp_path / "logs" / "audit.log"
    log.parent.mkdir()
    return HubSettings(tmp_path / "hub", audit_policy_file=file, audit_log_path=log)


def events_in(settings: HubSettings, **wanted: Any) -> list[dict[str, Any]]:
    assert settings.audit_log_path is not None
    wait_written()
    found = map(json.loads, settings.audit_log_path.read_bytes().splitlines())
    return [each for each in found if wanted.items() <= each.items()]


def shown(events: list[dict[str, Any]]) -> list[tuple[str, str, str, int]]:
    return [
        (e["level"], e["stage"], e["verb"], e.get("responseStatus", {}).get("code", 0))
        for e in events
    ]


async def test_requests_have_the_events_that_the_policy_asks_for(tmp_path: Path) -> None:
    settings = written(tmp_path)
    async with (
        running_hub(settings) as hub,
        open_client(hub_settings(hub.installation.kubeconfig)) as client,
    ):
        ask = client.connection.exchange
        made = json.dumps(config_map("web", namespace="default", data={"k": "v"})).encode()
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
        sealed = json.dumps({**secret, "data": {"k": WORD}}).encode()
        await ask(ApiRequest("POST", f"{MAPS}?fieldManager=me&hidden={WORD}", body=made))
        await ask(ApiRequest("GET", f"{MAPS}/web"))
        await ask(ApiRequest("GET", f"{MAPS}/none?hidden={WORD}"))
        await ask(ApiRequest("POST", SECRETS, body=sealed))
        await ask(ApiRequest("GET", f"{SECRETS}/s"))
        await ask(ApiRequest("GET", "/api/v1/namespaces"))
        async with watching(client.connection, f"{MAPS}?watch=1"):
            begun = events_in(settings, verb="watch")
        assert shown(begun) == [
            ("Metadata", "RequestReceived", "watch", 0),
            ("Metadata", "ResponseStarted", "watch", 200),
        ]

    (created,) = events_in(settings, verb="create", level="RequestResponse")
    assert created["stage"] == "ResponseComplete"
    assert created["requestObject"]["data"] == {"k": "v"}
    assert created["responseObject"]["metadata"]["name"] == "web"
    assert "managedFields" not in created["responseObject"]["metadata"]
    assert created["objectRef"]["name"] == "web"
    assert created["user"]["username"] == "kubernetes-admin"
    assert created["sourceIPs"] == ["127.0.0.1"]
    assert created["annotations"]["authorization.k8s.io/decision"] == "allow"

    read = events_in(settings, verb="get")
    assert shown(read)[:4] == [
        ("Metadata", "RequestReceived", "get", 0),
        ("Metadata", "ResponseComplete", "get", 200),
        ("Metadata", "RequestReceived", "get", 0),
        ("Metadata", "ResponseComplete", "get", 404),
    ]
    assert read[3]["responseStatus"]["reason"] == "NotFound"
    assert read[3]["requestURI"] == f"{MAPS}/none?hidden=..."

    about_secrets = [e for e in events_in(settings) if e["objectRef"]["resource"] == "secrets"]
    assert [(e["verb"], e["level"]) for e in about_secrets] == [
        ("create", "Metadata"),
        ("get", "Metadata"),
    ]
    assert WORD not in json.dumps(about_secrets)
    assert not [e for e in events_in(settings) if e["requestURI"] == "/api/v1/namespaces"]

    assert settings.audit_log_path is not None
    verification = verify(settings.audit_log_path, files_of(settings.audit_log_path))
    assert verification.findings == []
    assert verification.lines == len(events_in(settings))


async def test_a_failed_login_is_an_event_without_its_credential(tmp_path: Path) -> None:
    settings = written(tmp_path)
    async with running_hub(settings) as hub:
        admin = hub_settings(hub.installation.kubeconfig)
        guessing = ConnectionSettings("hub", admin.server, admin.trust, AuthInfo(token="guess-7"))
        async with open_client(guessing) as client:
            await client.connection.exchange(ApiRequest("GET", f"{MAPS}/web"))

    (event,) = events_in(settings, stage="ResponseStarted")
    assert event["responseStatus"]["code"] == 401
    assert event["responseStatus"]["message"] == "Unauthorized"
    assert event["user"] == {}
    assert event["annotations"]["audit.clusterspace.io/count"] == "1"
    assert "guess-7" not in json.dumps(event)


async def test_a_policy_that_cannot_be_ends_the_start_with_its_place(tmp_path: Path) -> None:
    settings = written(tmp_path, POLICY.replace("level: None", "level: Nothing"))

    with pytest.raises(UnusableConfiguration, match=r"policy\.yaml: rules\[0\]\.level"):
        async with running_hub(settings):
            pytest.fail("it started")
