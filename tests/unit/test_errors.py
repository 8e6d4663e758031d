import inspect
import re

import pytest

from clusterspace import errors
from clusterspace.errors import ApiError, Cause, ClusterspaceError, Details


def subclasses_of(error_class: type) -> list[type]:
    direct = [each for each in error_class.__subclasses__() if each.__module__ == errors.__name__]
    return [error_class, *(found for each in direct for found in subclasses_of(each))]


ALL_ERRORS = subclasses_of(ClusterspaceError)
API_ERRORS = subclasses_of(ApiError)


def drawn_tree() -> list[tuple[str, str]]:
    """Read (class, parent) out of the picture in the module's docstring."""
    pairs: list[tuple[str, str]] = []
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([│ ]*)(?:[├└]── )?([A-Z]\w+)(?:\s|$)", line)
        if found is None:
            continue
        depth = (found.start(2) - 4) // 4
        above[depth] = found[2]
        pairs.append((found[2], above.get(depth - 1, "Exception")))
    return pairs


def test_the_tree_in_the_docstring_is_the_tree_in_the_code():
    in_code = [(each.__name__, each.__mro__[1].__name__) for each in ALL_ERRORS]

    assert sorted(drawn_tree()) == sorted(in_code)


@pytest.mark.parametrize("error_class", API_ERRORS)
def test_the_docstring_tells_the_code_of_each_api_error(error_class: type[ApiError]):
    drawn = re.search(rf"── {error_class.__name__} +([0-9]{{3}})", errors.__doc__ or "")

    assert drawn is None or int(drawn[1]) == error_class.code
    assert 400 <= error_class.code < 600


def test_no_api_error_speaks_for_the_reason_of_another():
    spoken = {each.reason: each for each in reversed(API_ERRORS)}
    kubernetes_names = [each for each in API_ERRORS if each.__name__ in spoken]

    assert len(kubernetes_names) > 10
    for each in kubernetes_names:
        assert each.reason == each.__name__


def test_every_error_says_what_it_means():
    for each in ALL_ERRORS:
        assert inspect.getdoc(each)


def test_an_api_error_carries_its_message_and_details():
    details = Details(name="web", causes=(Cause("R", "m", "f"),))

    error = errors.NotFound("gone", details)

    assert str(error) == error.message == "gone"
    assert error.details is details
    assert errors.NotFound("gone").details is None


def test_a_malformed_text_names_its_place_and_what_it_is():
    error = errors.MalformedSelector("no", place="character 3")

    assert error.place == "character 3"
    assert error.what == "selector"
    assert error.code == 400


def test_store_errors_carry_the_numbers_they_talk_about():
    compacted = errors.Compacted(asked=3, oldest=7)
    future = errors.FutureRevision(asked=9, current=7)
    mismatch = errors.RevisionMismatch("/a", expected=1, actual=2)

    assert (compacted.asked, compacted.oldest) == (3, 7)
    assert (future.asked, future.current) == (9, 7)
    assert (mismatch.key, mismatch.expected, mismatch.actual) == ("/a", 1, 2)
    assert str(mismatch) == "/a is at revision 2, not 1"
