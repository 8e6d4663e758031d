"""What a witness says with its Lease, written and read again."""

import pytest

from clusterspace.apis.witnesses import WitnessReport, is_witness_lease, lease_of, read_report
from clusterspace.kube.objects import Object, with_metadata, with_value

SEEN = WitnessReport(
    "3f9a", "fleet API server on a", frozenset({"u1", "u2"}), frozenset({"u3"}), 5, 4
)


@pytest.mark.parametrize("report", [SEEN, WitnessReport("3f9a")])
def test_what_is_said_is_read(report: WitnessReport) -> None:
    assert read_report(lease_of(report, 1_700_000_000.0)) == report


@pytest.mark.parametrize(
    "lease",
    [
        with_value(lease_of(SEEN, 0.0), "other", "spec", "holderIdentity"),
        with_metadata(lease_of(SEEN, 0.0), name="clusterspace-tunnel-3f9a"),
        with_metadata(lease_of(SEEN, 0.0), annotations={"clusterspace.io/away": "u1"}),
        with_metadata(lease_of(SEEN, 0.0), annotations={"clusterspace.io/others-heard": "-1/many"}),
        with_metadata(
            lease_of(SEEN, 0.0), annotations={"clusterspace.io/others-heard": f"1/{'9' * 5000}"}
        ),
        {"metadata": {"name": "clusterspace-witness-"}},
    ],
)
def test_what_cannot_be_read_says_nothing(lease: Object) -> None:
    assert read_report(lease) is None


@pytest.mark.parametrize(
    ("asked", "heard", "is_credible"),
    [(0, 0, False), (1, 0, False), (1, 1, True), (4, 2, True), (5, 2, False)],
)
def test_who_hears_hardly_anybody_is_not_believed(
    asked: int, heard: int, is_credible: bool
) -> None:
    assert WitnessReport("a", others_asked=asked, others_heard=heard).is_credible is is_credible


def test_only_leases_of_one_name_and_place_are_believed() -> None:
    assert is_witness_lease("kube-public", "clusterspace-witness-a")
    assert not is_witness_lease("default", "clusterspace-witness-a")
    assert not is_witness_lease("kube-public", "clusterspace-tunnel-a")
