"""The vector of a stream is the vector of its parts, and serves to go on and to write."""

from hypothesis import given
from hypothesis import strategies as st

from clusterspace.fleet.gateway.merge import versions

names = st.sampled_from(["karmada", "east", "west", "north", "c172969", "c702257"])
steps = st.lists(st.tuples(names, st.integers(1, 10**10).map(str)), min_size=1, max_size=30)


@given(steps)
def test_a_running_vector_is_always_the_vector_of_its_parts(changes: list[tuple[str, str]]) -> None:
    running, parts = versions.RunningVector(), dict[str, str]()
    for cluster, version in changes:
        running.set(cluster, version)
        parts[cluster] = version

        assert running.encode() == versions.encode(parts)


def test_a_stream_goes_on_from_its_place_and_a_write_names_the_object() -> None:
    vector = versions.encode({"east": versions.placed("70", "12"), "west": "31"})

    assert versions.decode(vector, ("east", "west")) == {"east": "70", "west": "31"}
    assert versions.version_in(vector, "east", ("east", "west")) == "12"
    assert versions.version_in(vector, "west", ("east", "west")) == "31"


def test_what_was_told_in_part_has_no_place_to_go_on_from() -> None:
    vector = versions.encode({"east": versions.placed("", "12"), "west": ""})

    assert versions.decode(vector, ("east", "west")) == {"east": "", "west": ""}
    assert versions.version_in(vector, "east", ("east", "west")) == "12"
