from collections.abc import Callable
from typing import Any

import pytest

from clusterspace.errors import UnusableConfiguration
from clusterspace.kube.configuration_files import SOME, Section, read_configuration

HEAD = {"apiVersion": "example.com/v1", "kind": "Doors"}


def read(**fields: Any) -> Section:
    return read_configuration({**HEAD, **fields}, "Doors", ("example.com/v1",))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "it is no Doors: it has to be a map"),
        ([HEAD], "it is no Doors: it has to be a map"),
        ({}, "it is no Doors of example.com/v1: it says None, None"),
        ({**HEAD, "kind": "Gates"}, "it says example.com/v1, Gates"),
        ({**HEAD, "apiVersion": ["example.com/v1"]}, "it is no Doors of example.com/v1"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_it_says(document: Any, words: str) -> None:
    with pytest.raises(UnusableConfiguration) as refused:
        read_configuration(document, "Doors", ("example.com/v1",))

    assert words in str(refused.value)


def test_a_field_that_nobody_reads_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnusableConfiguration) as refused:
        read(doors=[{"name": "a"}, {"colour": 1}]).sections("doors")[1].require_only("name", "key")

    place, _, why = str(refused.value).partition(": ")
    assert place == "doors[1]"
    assert why == "colour is not known here: there is no field colour, only name, key"


@pytest.mark.parametrize(
    ("look", "words"),
    [
        (lambda file: file.text("odd"), "odd: it has to be a text"),
        (lambda file: file.flag("odd", default=True), "odd: it has to be true or false"),
        (lambda file: file.items("odd"), "odd: it has to be a list"),
        (lambda file: file.items("none", SOME), "none: it has to be a list with something in it"),
        (lambda file: file.items("missing", SOME), "missing: it has to be a list with something"),
        (lambda file: file.texts("mixed"), "mixed[1]: it has to be a text"),
        (lambda file: file.sections("mixed"), "mixed[0]: it has to be a map"),
        (lambda file: file.section("missing"), "missing: it has to be a map"),
        (lambda file: file.section("door").text("key"), "door.key: it has to be a text"),
    ],
)
def test_what_is_of_another_type_is_refused_with_its_place_and_not_shown(
    look: Callable[[Section], object], words: str
) -> None:
    file = read(odd=4711, none=[], mixed=["a", 4711], door={"key": 4711})

    with pytest.raises(UnusableConfiguration) as refused:
        look(file)

    assert words in str(refused.value)
    assert "4711" not in str(refused.value)


def test_what_is_left_out_is_empty_or_as_it_is_by_default() -> None:
    file = read(note=None)

    assert (file.text("note"), file.text("note", "3s")) == ("", "3s")
    assert (file.items("note"), file.texts("note"), file.sections("note")) == ([], (), [])
    assert file.flag("note", default=True)
