"""What a kubectl command must have done, as small checks that read the API."""

from collections.abc import Callable
from typing import Any

from tests.conformance.kubectl_stage import Ran, Stage

from clusterspace.kube.json_patches import read_pointer

Check = Callable[[Stage, Ran], None]


def prints(*texts: str) -> Check:
    """Standard output has each of the texts."""

    def check(stage: Stage, ran: Ran) -> None:
        for text in texts:
            assert stage.place(text) in ran.output, ran.output

    return check


def prints_in_order(*texts: str) -> Check:
    """Standard output has the texts, one after the other."""

    def check(stage: Stage, ran: Ran) -> None:
        places = [ran.output.find(stage.place(text)) for text in texts]
        assert -1 not in places, ran.output
        assert places == sorted(places), ran.output

    return check


def says(*texts: str) -> Check:
    """Standard error has each of the texts: warnings, and what went wrong."""

    def check(stage: Stage, ran: Ran) -> None:
        for text in texts:
            assert stage.place(text) in ran.error, ran.error

    return check


def omits(text: str) -> Check:
    """Standard output does not have the text."""

    def check(stage: Stage, ran: Ran) -> None:
        assert stage.place(text) not in ran.output, ran.output

    return check


def sets(resource: str, name: str, pointer: str, value: Any) -> Check:
    """The object has the value at the place a JSON pointer names."""

    def check(stage: Stage, _: Ran) -> None:
        found = value_at(stage.read(resource, name), pointer)
        assert found == value, f"{pointer} of {name} is {found!r}"

    return check


def makes(resource: str, name: str) -> Check:
    """The object is there."""

    def check(stage: Stage, _: Ran) -> None:
        assert stage.exists(resource, name), f"no {name} in {resource}"

    return check


def removes(resource: str, name: str) -> Check:
    """The object is gone."""

    def check(stage: Stage, _: Ran) -> None:
        assert not stage.exists(resource, name), f"{name} is still in {resource}"

    return check


def leaves(resource: str, name: str, pointer: str, value: Any) -> Check:
    """The command did not change this: the same check as `sets`, said the other way round."""
    return sets(resource, name, pointer, value)


def value_at(document: Any, pointer: str) -> Any:
    """Return what is at the place, or None where the place is not."""
    for token in read_pointer(pointer):
        if isinstance(document, list):
            document = document[int(token)] if int(token) < len(document) else None
        elif isinstance(document, dict):
            document = document.get(token)
        else:
            return None
    return document
