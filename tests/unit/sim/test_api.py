"""The objects of the simulated cluster as its controllers see them."""

from tests.unit.sim.workload_objects import deployment, pod

from clusterspace.kube.objects import Object, with_metadata
from clusterspace.sim.api import POD, Key, Mirror, key_of


def owned(name: str, owner: Object) -> Object:
    reference = {"kind": owner["kind"], "name": "web", "uid": "u1", "controller": True}
    return with_metadata(pod(name), ownerReferences=[reference])


def test_what_an_owner_has_follows_every_change() -> None:
    mirror, owner = Mirror(), with_metadata(deployment(), uid="u1")
    mirror.changed(owned("a", owner))
    mirror.changed(owned("b", owner))
    assert {key_of(each).name for each in mirror.owned_by(owner, POD)} == {"a", "b"}

    mirror.removed(owned("a", owner))
    mirror.changed(pod("b"))

    assert mirror.owned_by(owner, POD) == ()
    assert mirror.find(Key("Pod", "default", "b")) == pod("b")


def test_a_new_list_makes_everything_else_void() -> None:
    mirror = Mirror()
    gone: list[str] = []
    mirror.changed(pod("old"))
    mirror.watch(
        lambda change: gone.append(key_of(change.latest).name) if change.after is None else None
    )

    mirror.replace(POD, [pod("new")])

    assert gone == ["old"]
    assert [key_of(each).name for each in mirror.all(POD)] == ["new"]
