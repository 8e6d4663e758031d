"""The same policy over the same requests: our events and kube-apiserver's.

Where kube-apiserver is found both are asked, and what it wrote is held against the recording; ours
is held against the recording everywhere. `RECORD=1` writes it anew. Compared is all of an event but
ids, times, versions and addresses, and what docs/guides/logs-and-audit.md says differs on purpose.
"""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clusterspace.client.requests import ApiRequest
from clusterspace.client.settings import AuthInfo, ConnectionSettings
from clusterspace.kube.objects import Object
from clusterspace.roots.clients import hub_settings
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.hubs import (
    client_for_test,
    find_real_kubernetes,
    real_server_for_test,
)
from clusterspace.testing.steps import until

RECORDED = Path(__file__).parents[1] / "corpus" / "audit-events.json"
TOKENS = 'boss-token,boss,u-boss,"system:masters"\njane-token,jane,u-jane,"devs,ops"\n'
V1 = "/api/v1/namespaces"
MAPS, PODS, SECRETS = (f"{V1}/shop/{each}" for each in ("configmaps", "pods", "secrets"))
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Nobody but who is asked about.
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "userGroups": ["system:clusterspace", "system:nodes"]},
        {"level": "None", "nonResourceURLs": ["/healthz*", "/readyz*"]},
        {
            "level": "Request",
            "verbs": ["get"],
            "resources": [{"group": "", "resources": ["configmaps"], "resourceNames": ["named"]}],
        },
        {
            "level": "RequestResponse",
            "resources": [{"group": "", "resources": ["secrets"]}],
            "namespaces": ["shop"],
            "omitManagedFields": True,
        },
        {"level": "Metadata", "resources": [{"group": "", "resources": ["pods/log", "*/status"]}]},
        {
            "level": "Metadata",
            "verbs": ["watch"],
            "omitStages": ["ResponseStarted"],
            "resources": [{"group": "apps"}],
        },
        {"level": "Request", "users": ["jane"], "resources": [{"group": "apps"}]},
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": "", "resources": ["configmaps"]}],
            "omitManagedFields": True,
        },
        {
            "level": "None",
            "resources": [{"group": "", "resources": ["configmaps/*"]}],
            "verbs": ["list"],
            "namespaces": ["quiet"],
        },
        {"level": "Metadata", "nonResourceURLs": ["/version", "/api*", "/metrics"]},
        {"level": "None", "nonResourceURLs": ["*"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True)
class Ask:
    """One request, and who makes it."""

    method: str
    path: str
    body: Any = None
    who: str = "boss-token"
    as_user: tuple[str, ...] = ()
    content_type: str = "application/json"


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment(name: str) -> Object:
    labels = {"app": name}
    container = {"name": "main", "image": "web:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s"},
    "data": {"k": "dmFsdWU="},
}
REPLICAS = {"spec": {"replicas": 3}}
ROLE: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "reader"},
    "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
}
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
JANE = ("jane", "devs")

ASKED: dict[str, Ask] = {
    # configmaps: RequestResponse for writes, Metadata for reads
    "namespace": Ask(
        "POST", V1, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    ),
    "create": Ask("POST", MAPS, config_map("a", k="v")),
    "create-again": Ask("POST", MAPS, config_map("a", k="v")),
    "create-dry": Ask("POST", f"{MAPS}?dryRun=All", config_map("dry", k="v")),
    "create-field-manager": Ask("POST", f"{MAPS}?fieldManager=me", config_map("named", k="v")),
    "create-invalid": Ask("POST", MAPS, config_map("In valid")),
    "create-not-json": Ask("POST", MAPS, "nothing"),
    "get": Ask("GET", f"{MAPS}/a"),
    "get-named": Ask("GET", f"{MAPS}/named"),
    "get-missing": Ask("GET", f"{MAPS}/none"),
    "list": Ask("GET", f"{MAPS}?limit=5"),
    "list-selector": Ask("GET", f"{MAPS}?labelSelector=a%3Db"),
    "list-all": Ask("GET", "/api/v1/configmaps?limit=1"),
    "update": Ask("PUT", f"{MAPS}/a", config_map("a", k="w")),
    "update-other-name": Ask("PUT", f"{MAPS}/a", config_map("b", k="w")),
    "patch-merge": Ask("PATCH", f"{MAPS}/a", {"data": {"k": "m"}}, content_type=MERGE),
    "patch-strategic": Ask("PATCH", f"{MAPS}/a", {"data": {"k": "s"}}, content_type=STRATEGIC),
    "patch-json": Ask(
        "PATCH",
        f"{MAPS}/a",
        [{"op": "replace", "path": "/data/k", "value": "j"}],
        content_type=JSON_PATCH,
    ),
    "patch-bad": Ask(
        "PATCH",
        f"{MAPS}/a",
        [{"op": "test", "path": "/data/k", "value": "no"}],
        content_type=JSON_PATCH,
    ),
    "apply": Ask(
        "PATCH", f"{MAPS}/applied?fieldManager=me", config_map("applied", k="v"), content_type=APPLY
    ),
    "delete": Ask("DELETE", f"{MAPS}/a"),
    "delete-missing": Ask("DELETE", f"{MAPS}/a"),
    "deletecollection": Ask("DELETE", f"{MAPS}?labelSelector=none%3Dof"),
    # secrets: RequestResponse, named by the rule
    "secret-create": Ask("POST", SECRETS, SECRET),
    "secret-get": Ask("GET", f"{SECRETS}/s"),
    "secret-list": Ask("GET", SECRETS),
    "secret-delete": Ask("DELETE", f"{SECRETS}/s"),
    # apps: Metadata for the boss, Request for jane
    "deployment-create": Ask("POST", DEPLOYMENTS, deployment("web")),
    "deployment-scale-get": Ask("GET", f"{DEPLOYMENTS}/web/scale"),
    "deployment-scale": Ask("PATCH", f"{DEPLOYMENTS}/web/scale", REPLICAS, content_type=MERGE),
    "deployment-status": Ask(
        "PATCH", f"{DEPLOYMENTS}/web/status", {"status": {}}, content_type=MERGE
    ),
    "deployment-jane": Ask("POST", DEPLOYMENTS, deployment("mine"), who="jane-token"),
    "watch-apps": Ask("GET", f"{DEPLOYMENTS}?watch=1&timeoutSeconds=1&resourceVersion=0"),
    "watch-maps": Ask("GET", f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=0"),
    "watch-old-path": Ask("GET", "/api/v1/watch/namespaces/shop/configmaps?timeoutSeconds=1"),
    # other rules, other paths
    "role-create": Ask("POST", ROLES, ROLE),
    "role-get": Ask("GET", f"{ROLES}/reader"),
    "log-missing": Ask("GET", f"{PODS}/none/log"),
    "namespace-status": Ask("GET", f"{V1}/shop/status"),
    "unknown-resource": Ask("GET", f"{V1}/shop/widgets"),
    "unknown-group": Ask("GET", "/apis/none.example.com/v1/widgets"),
    "version": Ask("GET", "/version"),
    "api": Ask("GET", "/api"),
    "apis-other": Ask("GET", "/openapi/v3"),
    "healthz": Ask("GET", "/readyz"),
    "not-found-path": Ask("GET", "/nowhere"),
    # who asks
    "forbidden": Ask("GET", f"{MAPS}/a", who="jane-token"),
    "forbidden-write": Ask("POST", MAPS, config_map("c"), who="jane-token"),
    "impersonated": Ask("GET", f"{MAPS}/none", as_user=JANE),
    "impersonated-write": Ask("POST", MAPS, config_map("d"), as_user=JANE),
    "may-not-impersonate": Ask("GET", f"{MAPS}/a", who="jane-token", as_user=("boss",)),
    "login-failed": Ask("GET", f"{MAPS}/a", who="wrong-token"),
    "anonymous": Ask("GET", f"{MAPS}/a", who=""),
    "self-review": Ask(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    ),
}


@asynccontextmanager
async def servers(directory: Path, which: str) -> AsyncGenerator[tuple[ConnectionSettings, Path]]:
    """Run a server with the policy; return how it is reached and where its log is."""
    policy, log = directory / "policy.yaml", directory / "audit.log"
    policy.write_text(json.dumps(POLICY))
    async with AsyncExitStack() as stack:
        if which == "kubernetes":
            flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}")
            real = await stack.enter_async_context(
                real_server_for_test(directory, *flags, tokens=TOKENS)
            )
            yield real.settings, log
            return
        tokens = directory / "tokens.csv"
        tokens.write_text(TOKENS)
        settings = HubSettings(
            directory / "hub",
            store="memory",
            token_auth_file=tokens,
            audit_policy_file=policy,
            audit_log_path=log,
        )
        hub = await stack.enter_async_context(running_hub(settings))
        yield hub_settings(hub.installation.kubeconfig), log


async def events_of(directory: Path, which: str) -> dict[str, list[Any]]:
    """Ask everything; return the events of each request, as they can be compared."""
    async with servers(directory, which) as (settings, log):
        for name, ask in ASKED.items():
            identity = AuthInfo(token=ask.who)
            reached = ConnectionSettings(which, settings.server, settings.trust, identity)
            headers = [("Audit-ID", f"ask-{name}")]
            headers += [("Impersonate-User", each) for each in ask.as_user[:1]]
            headers += [("Impersonate-Group", each) for each in ask.as_user[1:]]
            body = None
            if ask.body is not None:
                body = json.dumps(ask.body).encode()
                headers.append(("Content-Type", ask.content_type))
            async with client_for_test(reached) as client:
                request = ApiRequest(ask.method, ask.path, headers=tuple(headers), body=body)
                await client.connection.exchange(request)

        def found() -> dict[str, list[Any]]:
            events: dict[str, list[Any]] = {name: [] for name in ASKED}
            for line in log.read_bytes().splitlines():
                event = json.loads(line)
                name = event["auditID"].removeprefix("ask-")
                if name in events:
                    events[name].append(comparable(event))
            return events

        await until(lambda: found()["self-review"])
        return found()


_CHANGING = ("uid", "resourceVersion", "creationTimestamp", "generation", "selfLink")


def comparable(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event without what is another every time, or another on purpose."""
    kept = {
        key: value
        for key, value in event.items()
        if key not in ("auditID", "requestReceivedTimestamp", "stageTimestamp", "sourceIPs")
    }
    kept["annotations"] = {
        key: value
        for key, value in event.get("annotations", {}).items()
        if not key.startswith("audit.clusterspace.io/")
    }
    for part in ("objectRef", "requestObject", "responseObject", "responseStatus"):
        if part in kept:
            kept[part] = without_changing(kept[part])
    return kept


def without_changing(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_changing(v) for k, v in value.items() if k not in _CHANGING}
    return [without_changing(each) for each in value] if isinstance(value, list) else value


DIFFERENT = {
    # kube-apiserver writes the object with its defaults, and we what was sent
    "create-invalid": ("requestObject",),
    "secret-create": ("requestObject",),
    # our own words for the same refusal
    "create-not-json": ("responseStatus", "responseObject"),
    "unknown-group": ("responseStatus",),
    # a hub runs no pods
    "log-missing": ("responseStatus",),
}


def alike(events: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return events without what is known to differ, and without details that say nothing."""
    for name, parts in DIFFERENT.items():
        for event in events[name]:
            for part in parts:
                event.pop(part, None)
    for each in events.values():
        for event in each:
            for part in ("responseStatus", "responseObject"):
                if event.get(part, {}).get("details") == {}:
                    del event[part]["details"]
    return events


async def test_our_events_are_those_that_kubernetes_wrote(tmp_path: Path) -> None:
    assert len(ASKED) > 40
    ours = alike(await events_of(tmp_path, "hub"))
    recorded = alike(json.loads(RECORDED.read_bytes()))

    assert recorded.keys() == ours.keys()
    for name, events in recorded.items():
        assert ours[name] == events, name


@pytest.mark.skipif(find_real_kubernetes() is None, reason="no kube-apiserver and etcd")
async def test_the_recording_is_what_kubernetes_writes(tmp_path: Path) -> None:
    theirs = await events_of(tmp_path, "kubernetes")
    if os.environ.get("RECORD"):
        RECORDED.write_text(json.dumps(theirs, indent=1, sort_keys=True) + "\n")

    assert alike(theirs) == alike(json.loads(RECORDED.read_bytes()))
