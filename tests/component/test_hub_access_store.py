"""Roles in a store: made once, completed, followed; and the audit log as a file."""

import json
import os
import stat
from pathlib import Path

import pytest
import structlog
from tests.component.hub_access_site import hub_site

from clusterspace.aio.clocks import SystemClock
from clusterspace.aio.tasks import Supervisor
from clusterspace.apiserver import forms
from clusterspace.apiserver.access.audit_log import AuditLog, Rotation
from clusterspace.apiserver.access.default_roles import RoleAggregator, install_default_roles
from clusterspace.apiserver.access.grants import NamespacedName, RoleCache
from clusterspace.apiserver.access.rbac import RBAC_GROUP
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.errors import WatcherEvicted
from clusterspace.testing.steps import until

CLUSTER_ROLES = f"/apis/{RBAC_GROUP}/v1/clusterroles"


async def test_installing_twice_writes_once() -> None:
    async with hub_site() as site:
        before = site.store.current_revision
        await install_default_roles(site.state)

        assert site.store.current_revision == before


async def test_a_default_role_that_was_deleted_comes_back() -> None:
    async with hub_site() as site:
        await site.ask("DELETE", f"{CLUSTER_ROLES}/system:discovery")
        await install_default_roles(site.state)

        assert site.access.role_cache.grants.find_role(NamespacedName("", "system:discovery"))


async def test_a_labelled_role_joins_an_aggregated_one() -> None:
    async with hub_site() as site, Supervisor(SystemClock(), print) as tasks:
        tasks.keep("aggregation", RoleAggregator(site.state).run)
        label = "rbac.authorization.k8s.io/aggregate-to-view"
        gadgets = {"verbs": ["get"], "apiGroups": ["x.io"], "resources": ["gadgets"]}
        role = {"metadata": {"name": "gadgets", "labels": {label: "true"}}, "rules": [gadgets]}
        assert (await site.ask("POST", CLUSTER_ROLES, role)).status == 201

        def has_joined() -> bool:
            rules = site.access.role_cache.grants.find_role(NamespacedName("", "admin")) or ()
            return any("gadgets" in rule.resources for rule in rules)

        await until(has_joined)


async def test_a_role_that_cannot_be_read_grants_nothing() -> None:
    store = MemoryStore()
    role_cache = RoleCache(store)
    await role_cache.load()
    key = forms.object_key(RBAC_GROUP, "clusterroles", "", "broken")
    rule = b'{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}'
    await store.put(key, b'{"rules":[%b]}' % rule)
    assert role_cache.grants.find_role(NamespacedName("", "broken"))

    with structlog.testing.capture_logs() as lines:
        await store.put(key, b"{")

    assert role_cache.grants.find_role(NamespacedName("", "broken")) is None
    assert [line["event"] for line in lines] == ["stored role cannot be read"]
    await store.close()


async def test_the_role_cache_has_what_was_there_before_it() -> None:
    async with hub_site() as site:
        second = RoleCache(site.store)
        await second.load()
        await second.load()

        assert len(second.grants) == len(site.access.role_cache.grants)
        await site.ask("DELETE", f"/apis/{RBAC_GROUP}/v1/clusterrolebindings/system:discovery")
        assert len(second.grants) == len(site.access.role_cache.grants)
        second.close()


async def test_a_role_cache_that_was_cut_off_catches_up() -> None:
    async with hub_site() as site, Supervisor(SystemClock(), print) as tasks:
        follower = RoleCache(site.store)
        await follower.load()
        tasks.keep("roles", follower.run)
        follower.close()
        role = {"metadata": {"name": "late"}, "rules": []}
        assert (await site.ask("POST", CLUSTER_ROLES, role)).status == 201
        assert follower.grants.find_role(NamespacedName("", "late")) is None

        follower._end(WatcherEvicted("too slow"))

        await until(lambda: follower.grants.find_role(NamespacedName("", "late")) is not None)
        follower.close()


def test_the_audit_log_is_its_owners_and_is_turned_over(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, Rotation(full_bytes=900, kept=2))
    for number in range(9):
        log.write({"line": number, "text": "x" * 20})
    log.close()

    files = sorted(each.name for each in tmp_path.iterdir())
    assert files.pop() == "audit.log.head"
    assert files == ["audit.log", "audit.log.1", "audit.log.2"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = [
        json.loads(line)["line"]
        for name in reversed(files)
        for line in (tmp_path / name).read_text().splitlines()
    ]
    assert lines == list(range(lines[0], 9))


@pytest.mark.usefixtures("logged_errors")
def test_a_turn_of_the_audit_log_that_failed_loses_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path, Rotation(full_bytes=10, kept=3))
    log.write({"line": "first"})

    def refuse(*_: object) -> int:
        raise OSError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("os.open", refuse)
        log.write({"line": "lost"})
    log.write({"line": "second"})
    log.write({"line": "third"})
    log.close()

    def only_line(name: str) -> str:
        return json.loads((tmp_path / name).read_bytes())["line"]

    assert only_line("audit.log") == "third"
    assert only_line("audit.log.1") == "second"
    assert only_line("audit.log.2") == "first"


def test_a_full_disk_is_one_line_of_the_log_and_not_one_for_each_request(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    full, room = os.open("/dev/full", os.O_WRONLY), log._file

    with structlog.testing.capture_logs() as lines:
        log._file = full
        for _ in range(3):
            log.write({})
        log._file = room
        log.write({})
    os.close(full)
    log.close()

    assert [(line["event"], line.get("lost")) for line in lines] == [
        ("audit lines are lost until they can be written", None),
        ("audit lines are written again", 3),
    ]
    (line,) = map(json.loads, (tmp_path / "audit.log").read_bytes().splitlines())
    assert line["annotations"]["audit.clusterspace.io/lost-before"] == "3"


@pytest.mark.parametrize("name", ["admin", "edit", "view"])
async def test_aggregated_roles_are_filled_before_the_first_request(name: str) -> None:
    async with hub_site() as site:
        assert site.access.role_cache.grants.find_role(NamespacedName("", name))
