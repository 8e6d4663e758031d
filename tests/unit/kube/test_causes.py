"""Paths and values look as Kubernetes prints them."""

import pytest

from clusterspace.kube.causes import (
    Element,
    Key,
    dotted_text,
    field_text,
    quoted,
    value_text,
)


def test_a_path_names_fields_indexes_and_keys() -> None:
    assert field_text(("spec", "containers", 0, "image")) == "spec.containers[0].image"
    assert field_text(("metadata", "labels", Key("a/b"))) == "metadata.labels[a/b]"


def test_schema_messages_write_free_keys_after_a_dot() -> None:
    assert dotted_text(("metadata", "labels", Key("a"))) == "metadata.labels.a"


def test_elements_are_named_by_their_keys() -> None:
    port = Element((("containerPort", 80), ("protocol", "TCP")))

    assert field_text(("spec", "ports", port)) == 'spec.ports[containerPort=80,protocol="TCP"]'


def test_no_path_is_printed_as_kubernetes_prints_it() -> None:
    assert field_text(()) == "<nil>"
    assert field_text(("a", 1), "root") == "root.a[1]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (3.0, "3"),
        (1.5, "1.5"),
        (1e21, "1e+21"),
        ("a", '"a"'),
        ({"b": [1], "a": "<"}, '{"a":"\\u003c","b":[1]}'),
    ],
)
def test_values_are_printed_in_their_shortest_form(value, text) -> None:
    assert value_text(value) == text


def test_texts_are_quoted_so_that_nothing_invisible_is_printed() -> None:
    assert quoted('a"\\\n\x01\x85\U000e0001é') == '"a\\"\\\\\\n\\x01\\u0085\\U000e0001é"'
