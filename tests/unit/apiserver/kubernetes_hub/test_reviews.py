"""What rules change is told to an API server as a patch that makes exactly that."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clusterspace.apiserver.kubernetes_hub.reviews import difference
from clusterspace.kube.json_patches import apply_json_patch, parse_json_patch

scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
keys = st.text(alphabet="ab/~.-", min_size=1, max_size=4)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=4)


@given(objects, objects)
def test_a_difference_leads_from_one_object_to_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    patch = difference(before, after)

    assert apply_json_patch(before, parse_json_patch(patch)) == after


@given(objects)
def test_nothing_is_said_of_what_stays(same: dict[str, Any]) -> None:
    assert difference(same, dict(same)) == []
