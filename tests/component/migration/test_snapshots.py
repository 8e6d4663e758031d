"""Snapshots of members that do not show everything, forget their pages, or make no sense."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.requests import ResourcePath
from clusterspace.client.settings import AuthInfo, ConnectionSettings, Pem, Trust
from clusterspace.errors import CannotProve
from clusterspace.fleet.migration.proof import Verdict, compare
from clusterspace.fleet.migration.snapshots import KINDS as COMPARED
from clusterspace.fleet.migration.snapshots import Selection, Snapshot, capture
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import PODS, pod
from clusterspace.testing.certificates import loopback_tls
from clusterspace.testing.hostile import (
    ESCAPES,
    KINDS,
    Asked,
    Behaviour,
    answering,
    hostile_member,
    list_head,
    refusing,
)
from clusterspace.testing.hubs import client_for_test, hub_for_test

RBAC = "rbac.authorization.k8s.io"
ROLES = ResourcePath(GroupVersionResource(RBAC, "v1", "clusterroles"))
BINDINGS = ResourcePath(GroupVersionResource(RBAC, "v1", "clusterrolebindings"))


async def test_what_may_not_be_read_is_not_seen_and_what_may_is(tmp_path: Path) -> None:
    async with (
        hub_for_test(tmp_path, tokens="of-ann,ann,1\n", name="west") as settings,
        client_for_test(settings) as admin,
        client_for_test(replace(settings, identity=AuthInfo(token="of-ann"))) as ann,
    ):
        for number in range(3):
            await admin.create(ResourcePath(PODS, "default"), pod(f"web-{number}"))
        with pytest.raises(CannotProve, match="its UID, which is that of the namespace"):
            await capture(ann, Selection(), SystemClock())

        rules = [
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        ]
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "look"}}
        await admin.create(ROLES, {**role, "rules": rules})
        binding = {
            **role,
            "kind": "ClusterRoleBinding",
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "ann"}],
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "look"},
        }
        await admin.create(BINDINGS, binding)
        seen = await capture(ann, Selection(), SystemClock())

        assert seen.taken_by == "ann"
        assert seen.counts() == {"Pod": 3}
        assert [each.kind for each in seen.unseen] == [each for each in COMPARED if each != "Pod"]
        assert all("forbidden" in each.why for each in seen.unseen)
        report = compare(seen, seen)
        assert not report.is_unchanged
        assert {each.verdict for each in report.findings} == {Verdict.NOT_SEEN}


def pages_of(*attempts: list[Object | None]) -> Behaviour:
    """Return a member whose pods come one to a page, each attempt anew; None is 410 Expired."""
    waiting, expired = list(attempts), refusing(410, "Expired", message="too old")

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> None:
        body: Object = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"uid": "c-1"}}
        if asked.method == "POST":
            body = {"kind": "SelfSubjectReview", "status": {"userInfo": {"username": ESCAPES}}}
        elif asked.path.endswith("/pods"):
            number = int(asked.parameter("continue") or 0)
            attempt = waiting[0]
            if attempt[number] is None:
                waiting.pop(0)
                await expired(asked, writer)
                return
            more = str(number + 1) if number + 1 < len(attempt) else ""
            metadata = {"resourceVersion": "5", "continue": more}
            body = {**list_head(asked), "metadata": metadata, "items": [attempt[number]]}
        elif not asked.path.endswith("/kube-system"):
            body = {**list_head(asked), "items": []}
        await answering(200, msgspec.json.encode(body))(asked, writer)

    return behave


def seen_pod(name: str, **changed: Any) -> Object:
    metadata = {"name": name, "namespace": "shop", "uid": "u", "resourceVersion": "1"}
    container = {"name": "main", "containerID": "c://1", "restartCount": 0, **changed}
    status = {"phase": "Running", "containerStatuses": [container]}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "status": status}


async def captured(behave: Behaviour) -> Snapshot:
    trust = Trust(Pem(data=loopback_tls().authority))
    async with (
        hostile_member(behave) as member,
        client_for_test(ConnectionSettings("west", member.url, trust)) as client,
    ):
        return await capture(client, Selection(), SystemClock())


async def test_pages_that_ran_too_old_are_read_from_the_first_one_again() -> None:
    first, second = seen_pod("web-0"), seen_pod("web-1")

    seen = await captured(pages_of([first, None], [first, second]))

    assert [each.name for each in seen.identities] == ["web-0", "web-1"]
    assert seen.unseen == ()
    assert seen.taken_by.isprintable()


async def test_a_list_that_is_never_whole_is_not_seen() -> None:
    broken: list[Object | None] = [seen_pod("web-0"), None]

    seen = await captured(pages_of(broken, broken, broken))

    assert seen.identities == ()
    assert [each.kind for each in seen.unseen] == ["Pod"]


@pytest.mark.parametrize(
    "nonsense",
    [
        seen_pod("web-0", restartCount="many"),
        seen_pod("web-0", restartCount=1e99),
        seen_pod("web-0", containerID=["c://1"]),
        {**seen_pod("web-0"), "status": []},
        {**seen_pod("web-0"), "spec": "none"},
    ],
)
async def test_an_object_that_makes_no_sense_is_not_seen_and_hides_no_other(
    nonsense: Object,
) -> None:
    seen = await captured(pages_of([nonsense, seen_pod("web-1")]))

    assert [each.name for each in seen.identities] == ["web-1"]
    assert [(each.kind, each.namespace, each.name) for each in seen.unseen] == [
        ("Pod", "shop", "web-0")
    ]


@pytest.mark.parametrize("kind", ["garbage", "redirect", "truncated", "empty-pages"])
async def test_a_member_that_means_harm_proves_nothing(kind: str) -> None:
    harmful = KINDS[kind]
    honest = pages_of([seen_pod("web-0")])

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> None:
        chosen = harmful if asked.path.endswith("/pods") else honest
        await chosen(asked, writer)

    seen = await captured(behave)

    assert seen.identities == ()
    assert [each.kind for each in seen.unseen] == ["Pod"]
    assert not compare(seen, seen).is_unchanged
