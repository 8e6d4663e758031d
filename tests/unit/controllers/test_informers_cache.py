import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.client.resources import RawObject, Version, read_raw_object
from clusterspace.controllers.informers import Cache, by_label, by_owner_uid, by_uid
from clusterspace.kube.selectors import parse_label_selector
from clusterspace.testing.builders import pod

COLOURS = st.sampled_from(["red", "blue", ""])


def raw(name: str, version: int = 1, colour: str = "") -> RawObject:
    labels = {"colour": colour} if colour else {}
    made = pod(name, uid=f"uid of {name}", resourceVersion=str(version), labels=labels)
    return read_raw_object(msgspec.json.encode(made))


def test_what_is_put_in_is_read_out_and_belongs_to_the_reader():
    cache = Cache()
    cache.put(raw("a"))
    mine = cache.find("default/a")
    assert mine is not None
    mine["metadata"]["name"] = "changed"

    assert cache.find("default/a") == raw("a").decode()
    assert cache.find_version("default/a") == Version("uid of a", "1")
    assert cache.find("default/b") is None
    assert "default/a" in cache


def test_objects_are_selected_by_their_labels():
    cache = Cache()
    cache.put(raw("a", colour="red"))
    cache.put(raw("b", colour="blue"))

    selected = cache.objects(parse_label_selector("colour=red"))

    assert [each["metadata"]["name"] for each in selected] == ["a"]
    assert len(list(cache.objects())) == 2


def test_what_was_removed_is_returned_once():
    cache = Cache()
    cache.put(raw("a"))

    assert cache.remove("default/a") == raw("a").raw
    assert cache.remove("default/a") is None
    assert len(cache) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), COLOURS | st.none()), max_size=20))
def test_an_index_is_what_a_search_would_find(steps: list[tuple[str, str | None]]):
    cache = Cache({"colour": by_label("colour")})
    for version, (name, colour) in enumerate(steps):
        if colour is None:
            cache.remove(f"default/{name}")
        else:
            cache.put(raw(name, version, colour))

    for colour in ("red", "blue"):
        found = {
            f"default/{each['metadata']['name']}"
            for each in cache.objects(parse_label_selector(f"colour={colour}"))
        }
        assert cache.keys_at("colour", colour) == found
        assert len(cache.objects_at("colour", colour)) == len(found)


def test_owners_and_uids_are_indexes():
    owned = pod("a", uid="u", ownerReferences=[{"uid": "owner"}, {"name": "no uid"}])

    assert list(by_owner_uid(owned)) == ["owner"]
    assert list(by_uid(owned)) == ["u"]
