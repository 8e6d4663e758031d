"""When a write meets which plug-in, and what it sees there."""

from dataclasses import replace

import pytest
from tests.unit.apiserver.hub_subjects import config_map, hub_state

from clusterspace.apiserver.options import DeleteOptions
from clusterspace.apiserver.state import (
    EVERY_OPERATION,
    Admission,
    HubState,
    Operation,
    Plugin,
)
from clusterspace.apiserver.writing import SELF, Author, create_own, remove
from clusterspace.errors import Forbidden
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at, with_value


class Recorder(Plugin):
    """Says when it was asked, and about what."""

    handles = EVERY_OPERATION

    def __init__(self) -> None:
        self.seen: list[tuple[str, Operation, object]] = []

    def note(self, step: str, admission: Admission) -> None:
        labels = find_at(admission.new, "metadata", "labels", "marks")
        self.seen.append((step, admission.operation, labels))

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        self.note("mutate", admission)
        return admission.new

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        self.note("admit", admission)
        return admission.new

    async def validate(self, hub: HubState, admission: Admission) -> None:
        self.note("validate", admission)


class Marker(Plugin):
    """Adds a mark in every mutation, and wants to see what comes after it once."""

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        marks = find_at(admission.new, "metadata", "labels", "marks") or ""
        admission.reinvocation.is_wanted = True
        return with_value(admission.new, marks + "m", "metadata", "labels", "marks")


class Refuser(Plugin):
    """Refuses every delete, after all others."""

    handles = frozenset({Operation.DELETE})

    async def validate(self, hub: HubState, admission: Admission) -> None:
        resource = admission.served.info.group_resource
        raise statuses.forbidden(resource, admission.name, "it stays")


async def test_a_new_object_is_mutated_admitted_and_validated_in_this_order() -> None:
    recorder = Recorder()
    hub = replace(hub_state(), plugins=(recorder,))
    maps = hub.catalog.get_storage("", "configmaps")

    await create_own(hub, maps, config_map(), "test")

    assert [(step, operation) for step, operation, _ in recorder.seen] == [
        ("mutate", Operation.CREATE),
        ("admit", Operation.CREATE),
        ("validate", Operation.CREATE),
    ]


async def test_mutations_are_asked_again_once_and_later_steps_see_their_result() -> None:
    recorder = Recorder()
    hub = replace(hub_state(), plugins=(Marker(), recorder))
    maps = hub.catalog.get_storage("", "configmaps")

    await create_own(hub, maps, config_map(), "test")

    assert [(step, marks) for step, _, marks in recorder.seen] == [
        ("mutate", "m"),
        ("mutate", "mm"),
        ("admit", "mm"),
        ("validate", "mm"),
    ]


async def test_a_delete_is_asked_about_and_may_be_refused() -> None:
    recorder = Recorder()
    hub = replace(hub_state(), plugins=(recorder, Refuser()))
    maps = hub.catalog.get_storage("", "configmaps")
    entry = await create_own(hub, maps, config_map(), "test")
    recorder.seen.clear()

    with pytest.raises(Forbidden, match="it stays"):
        await remove(hub, maps, entry.key, DeleteOptions(), Author(SELF))

    assert [step for step, _, _ in recorder.seen] == ["mutate", "admit", "validate"]
    assert {operation for _, operation, _ in recorder.seen} == {Operation.DELETE}
    assert await hub.store.get(entry.key) is not None


async def test_what_the_hub_removes_without_an_author_is_not_asked_about() -> None:
    hub = replace(hub_state(), plugins=(Refuser(),))
    maps = hub.catalog.get_storage("", "configmaps")
    entry = await create_own(hub, maps, config_map(), "test")

    removed = await remove(hub, maps, entry.key, DeleteOptions(), None)

    assert removed.is_gone
