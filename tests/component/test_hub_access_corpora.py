"""Hostile paths and headers over raw sockets: what was authorized is what was touched."""

import random
from collections.abc import AsyncIterator, Iterator
from itertools import product

import pytest
from tests.component.hub_access_site import ADMIN, HubSite, hub_site

from clusterspace.apiserver import forms
from clusterspace.apiserver.http.request_info import RequestInfo

BASES = (
    "/api/v1/namespaces/default/configmaps/web",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/shop",
    "/api/v1/nodes/web",
    "/apis/apps/v1/namespaces/shop/deployments/web/scale",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/view",
    "/apis/cluster.karmada.io/v1alpha1/clusters/west",
    "/version",
)
TRICKS = (
    "..", ".", "%2e%2e", "%2e", "%252e%252e", "%2F", "%5c", "%00", "%0a", "%c0%ae", "%c0%af",
    "%e2%80%8b", "%zz", "%", ";", ";x=1", "a;b", "\\", "~", "*", "namespaces", "watch", "proxy",
    "default", "..;", "...", "%20", "+", "@", "WEB", "web.", "%77eb", "configmaps", "secrets",
)  # fmt: skip
QUERIES = ("", "?watch=0", "?fieldSelector=metadata.name%3Dother", "?namespace=kube-system")
NAMES = ("User", "Group", "Uid", "Extra-Scope", "Extra-", "Extra-%2e", "Foo", "")
READER = {
    "metadata": {"name": "reader"},
    "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "delete"]}],
}
BOUND = {
    "metadata": {"name": "reader"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
    "subjects": [{"kind": "User", "name": "viewer"}],
}


@pytest.fixture
async def site() -> AsyncIterator[HubSite]:
    async with hub_site() as running:
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        assert (await running.ask("POST", f"{rbac}/roles", READER)).status == 201
        assert (await running.ask("POST", f"{rbac}/rolebindings", BOUND)).status == 201
        yield running


def hostile_paths() -> Iterator[str]:
    """Put every trick in front of, in place of, into and behind every segment of every path."""
    for base, trick in product(BASES, TRICKS):
        segments = base.split("/")[1:]
        for place in range(len(segments) + 1):
            yield "/" + "/".join([*segments[:place], trick, *segments[place:]])
        yield base + trick
        yield f"{base}/{trick}/"
        yield base.replace("/", "//", 1) + trick


def expected_prefix(site: HubSite, info: RequestInfo) -> str | None:
    """Return the only place in the store that a request for this may touch."""
    served = site.state.catalog.find(info.group, info.version, info.resource)
    if served is None:
        return None
    storage = served.storage
    namespace = info.namespace if served.info.namespaced else ""
    if info.is_watch:
        # Watches of a resource share one feed; what each may see is filtered behind it.
        return forms.collection_key(storage.group, storage.resource)
    return forms.object_key(storage.group, storage.resource, namespace, info.name)


def check_agreement(site: HubSite, sent: str, user: str) -> None:
    """Assert that what was authorized, what was handled and what was touched are one thing."""
    handled = site.witness.handled
    assert len(handled) <= 1, sent
    if not handled:
        assert site.touched == [], sent
        return
    (call,) = handled
    authorized_user, authorized = site.witness.authorized[-1]
    assert authorized is call.info, sent
    assert authorized_user is call.user, sent
    assert call.user.name == user, sent
    prefix = expected_prefix(site, call.info)
    namespace_key = forms.object_key("", "namespaces", "", call.info.namespace)
    foreign = [key for key in site.touched if key not in (prefix, namespace_key)]
    is_collection = not call.info.name or call.info.is_watch
    if is_collection and prefix is not None:
        foreign = [key for key in foreign if not key.startswith(prefix)]
    assert foreign == [], (sent, call.info)


@pytest.mark.parametrize(("token", "user"), [(ADMIN, "admin"), ("viewer-token", "viewer")])
async def test_a_path_means_one_thing_to_everybody(site: HubSite, token: str, user: str) -> None:
    chosen = random.Random(7)
    count = 0
    for path in hostile_paths():
        method = chosen.choice(("GET", "GET", "DELETE", "PUT"))
        sent = f"{method} {path}{chosen.choice(QUERIES)}"
        lines = f"{sent} HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n\r\n"
        await site.send(lines.encode())
        check_agreement(site, sent, user)
        count += 1
    assert count > 2_000


async def test_a_viewer_reaches_one_namespace_of_one_resource_by_any_path(site: HubSite) -> None:
    for path in hostile_paths():
        lines = (f"GET {path} HTTP/1.1", "Host: hub", "Authorization: Bearer viewer-token", "", "")
        await site.send("\r\n".join(lines).encode())
        allowed = forms.collection_key("", "configmaps", "default")
        assert [key for key in site.touched if not key.startswith(allowed)] == [], path


def hostile_headers() -> Iterator[list[bytes]]:
    """Spell impersonation in every way that some server reads as impersonation."""
    chosen = random.Random(11)
    values = (b"root", b"system:masters", b"", b"a,b", b" root ", b"r\xc3\xb6\xc3\xb6t", b"root\t")
    for name, value, _ in product(NAMES, values, range(18)):
        spelled = f"Impersonate-{name}".encode() if name else b"Impersonate"
        spelled = bytes(
            chosen.choice((each, each ^ 32)) if 65 <= each & ~32 <= 90 else each for each in spelled
        )
        if chosen.random() < 0.3:
            spelled = spelled.replace(b"-", b"_", chosen.choice((1, 2)))
        lines = [spelled + b": " + value]
        if chosen.random() < 0.3:
            lines.append(b"Impersonate-User: jane")
        if chosen.random() < 0.2:
            lines.append(b"Connection: keep-alive, " + spelled)
        if chosen.random() < 0.2:
            lines.append(chosen.choice((spelled + b" : x", b" " + spelled + b": x", spelled)))
        chosen.shuffle(lines)
        yield lines


async def test_nobody_becomes_somebody_else_by_spelling(site: HubSite) -> None:
    count = 0
    for lines, token in product(hostile_headers(), ("viewer-token", ADMIN)):
        head = [b"GET /version HTTP/1.1", b"Host: hub", f"Authorization: Bearer {token}".encode()]
        answer = await site.send(b"\r\n".join([*head, *lines, b"", b""]))
        count += 1
        for call in site.witness.handled:
            assert [
                name for name, _ in call.request.headers if name.startswith("impersonate")
            ] == []
            checked = [
                info.name for _, info in site.witness.authorized if info.verb == "impersonate"
            ]
            assert call.user.name in checked, lines
            assert token == ADMIN, lines
        if token != ADMIN:
            assert answer.status >= 400, lines
    assert count >= 2_000
