"""What envelopes may hold, and what is placed of them."""

import pytest

from clusterspace.apis.envelopes import contents_of, envelope_causes, opened
from clusterspace.apis.fleet_placements import API_VERSION
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.testing.builders import config_map


def envelope(name: str = "wrapped", **data: Object) -> Object:
    metadata = {"name": name, "namespace": "app"}
    written = {f"{key}.yaml": each for key, each in data.items()}
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceEnvelope",
        "metadata": metadata,
        "data": written,
    }


def wide_envelope(name: str = "wide", **data: Object) -> Object:
    made = envelope(name, **data)
    return {**made, "kind": "ClusterResourceEnvelope", "metadata": {"name": name}}


def bare(kube_object: Object) -> Object:
    """Return an object that leaves its namespace to the envelope."""
    metadata = {key: v for key, v in kube_object["metadata"].items() if key != "namespace"}
    return {**kube_object, "metadata": metadata}


@pytest.mark.parametrize(
    ("made", "field"),
    [
        (envelope(a={"kind": "ConfigMap", "metadata": {"name": "a"}}), "data[a.yaml].apiVersion"),
        (envelope(a={"apiVersion": "v1", "kind": "ConfigMap"}), "data[a.yaml].metadata.name"),
        (
            envelope(a={**bare(config_map("a")), "metadata": {"generateName": "a-"}}),
            "data[a.yaml].metadata.name",
        ),
        (
            envelope(a=config_map("a", namespace="other")),
            "data[a.yaml].metadata.namespace",
        ),
        (
            wide_envelope(a=config_map("a", namespace="app")),
            "data[a.yaml].metadata.namespace",
        ),
        (
            envelope(a=bare(config_map("a")), b=bare(config_map("a"))),
            "data[b.yaml]",
        ),
        (
            wide_envelope(a={"apiVersion": API_VERSION, "kind": "Work", "metadata": {"name": "a"}}),
            "data[a.yaml].kind",
        ),
        (
            wide_envelope(
                a={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
            ),
            "data[a.yaml]",
        ),
        (
            envelope(
                a={
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": "t"},
                    "type": "kubernetes.io/service-account-token",
                }
            ),
            "data[a.yaml]",
        ),
    ],
)
def test_what_cannot_be_made_on_a_member_is_refused_with_its_place(
    made: Object, field: str
) -> None:
    assert [each.field for each in envelope_causes(made)] == [field]


def test_what_is_in_an_envelope_has_its_namespace_and_other_objects_are_themselves() -> None:
    made = envelope(b=bare(config_map("b")), a=config_map("a", namespace="app"))

    assert not list(envelope_causes(made))
    assert [(namespace_of(e), name_of(e)) for e in opened(made)] == [("app", "a"), ("app", "b")]
    plain = config_map("c")
    assert opened(plain) == (plain,)


@pytest.mark.parametrize("written", [None, [], "x", {"a": 1}, {"a": {"kind": 1}}, {"a": {}}])
def test_an_envelope_that_makes_no_sense_holds_nothing(written: object) -> None:
    assert contents_of({**envelope(), "data": written}) == ()
