"""Which stored objects a selector selects, decoding as little as possible or all of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.apiserver.hub_subjects import CONFIG_MAPS, PODS, config_map, entry_of

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.options import ListOptions, Selection, select
from clusterspace.errors import ApiError, BadRequest


def selection(labels: str = "", fields: str = "", resource: Served = CONFIG_MAPS) -> Selection:
    return select(resource, ListOptions(label_selector=labels, field_selector=fields))


def test_no_selector_selects_everything() -> None:
    assert selection().is_everything
    assert selection().matches_entry(entry_of(config_map()))


@pytest.mark.parametrize(
    ("labels", "fields", "is_selected"),
    [
        ("app=web", "", True),
        ("app=db", "", False),
        ("app", "", True),
        ("!app", "", False),
        ("app in (web,db),tier!=x", "", True),
        ("", "metadata.name=web", True),
        ("", "metadata.name!=web", False),
        ("", "metadata.name=db", False),
        ("", "metadata.namespace=default", True),
        ("", "metadata.namespace=other", False),
        ("app=web", "metadata.name=web", True),
        ("app=db", "metadata.name=web", False),
        ("app=web", "metadata.name=db", False),
        ("", "metadata.name=web,metadata.namespace=other", False),
    ],
)
def test_labels_and_fields_must_both_agree(labels: str, fields: str, is_selected: bool) -> None:
    entry = entry_of(config_map("web", labels={"app": "web"}))

    assert selection(labels, fields).matches_entry(entry) == is_selected


def test_a_pinned_name_is_known_before_anything_is_read() -> None:
    assert selection(fields="metadata.name=web").only_name == "web"
    assert selection(fields="metadata.name!=web").only_name is None


def test_fields_of_the_kind_are_read_from_the_object() -> None:
    pod = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running"},
    }
    entry = entry_of(pod, PODS)

    assert selection(fields="spec.nodeName=n1,status.phase=Running", resource=PODS).matches_entry(
        entry
    )
    assert not selection(fields="spec.nodeName=n2", resource=PODS).matches_entry(entry)


@pytest.mark.parametrize("fields", ["spec.replicas=1", "metadata.labels=x", "nothing=1"])
def test_a_field_the_kind_does_not_select_by_is_refused(fields: str) -> None:
    with pytest.raises(BadRequest, match="field"):
        selection(fields=fields)


@pytest.mark.parametrize(("labels", "fields"), [("a=b=c", ""), ("((", ""), ("", "a"), ("", "a=\\")])
def test_a_selector_that_cannot_be_read_is_refused(labels: str, fields: str) -> None:
    with pytest.raises(ApiError) as refused:
        selection(labels, fields)
    assert refused.value.code == 400


label_maps = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]))
selectors = st.lists(
    st.sampled_from(["a=1", "a!=1", "b", "!b", "a in (1,2)", "b notin (2)"]), max_size=3
).map(",".join)


@given(label_maps, selectors, st.sampled_from(["", "metadata.name=web", "metadata.name!=x"]))
@settings(max_examples=100)
def test_the_quick_look_and_the_whole_object_agree(
    labels: dict[str, str], wanted: str, fields: str
) -> None:
    chosen = selection(wanted, fields)
    entry = entry_of(config_map("web", labels=labels))

    whole = forms.decode_stored(entry, CONFIG_MAPS.form)
    assert chosen.matches_entry(entry) == chosen.matches(whole)
