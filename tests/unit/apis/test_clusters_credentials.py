"""Which Secret is whose, and which changes of a Cluster move credentials."""

from typing import Any

import pytest

from clusterspace.apis.clusters import (
    USED_WITH,
    belongs_to,
    changed_fields,
    destination_of,
    is_claimed,
    misuse_of,
)
from clusterspace.client.endpoints import endpoint_problem
from clusterspace.kube.objects import Object, with_metadata, with_value


def cluster(**spec: Any) -> Object:
    metadata = {"name": "west", "uid": "uid-west"}
    held = {"syncMode": "Push", "apiEndpoint": "https://10.0.0.7:6443", **spec}
    return {"apiVersion": "cluster.karmada.io/v1alpha1", "metadata": metadata, "spec": held}


def secret(*owners: tuple[str, str], used_with: str = "https://10.0.0.7:6443") -> Object:
    kind = {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster"}
    references = [{**kind, "name": name, "uid": uid} for name, uid in owners]
    return {
        "metadata": {
            "name": "west",
            "namespace": "karmada-cluster",
            "ownerReferences": references,
            "annotations": {USED_WITH: used_with} if used_with else {},
        }
    }


OWN = ("west", "uid-west")


def test_a_secret_of_this_cluster_for_this_address_is_used() -> None:
    assert misuse_of(secret(OWN), cluster()) == ""
    assert misuse_of(secret(OWN), cluster(apiEndpoint="https://10.0.0.7:6443/")) == ""


@pytest.mark.parametrize(
    ("held", "why"),
    [
        (secret(), "names no Cluster as its owner"),
        (secret(("west", "uid-before")), "belongs to another Cluster"),
        (secret(("east", "uid-west")), "belongs to another Cluster"),
        (secret(OWN, ("east", "uid-east")), "belongs to another Cluster"),
        (secret(OWN, used_with=""), "another address"),
        (secret(OWN, used_with="https://10.0.0.8:6443"), "another address"),
        (with_metadata(secret(OWN), namespace="default"), "is not in namespace karmada-cluster"),
    ],
)
def test_any_other_is_not_and_the_sentence_tells_no_address(held: Object, why: str) -> None:
    told = misuse_of(held, cluster())

    assert why in told
    assert "10.0.0" not in told


@pytest.mark.parametrize(
    "spec",
    [
        {"apiEndpoint": "https://10.0.0.9"},
        {"proxyURL": "http://10.0.0.9:3128"},
        {"insecureSkipTLSVerification": True},
    ],
)
def test_another_address_is_another_way_or_another_trust_too(spec: Object) -> None:
    assert "another address" in misuse_of(secret(OWN), cluster(**spec))
    assert destination_of(cluster(**spec)) != destination_of(cluster())


def test_owners_of_other_kinds_and_broken_references_claim_nothing() -> None:
    odd = with_value(secret(), [{"kind": "Cluster"}, "text", {}], "metadata", "ownerReferences")
    other_kind = {"apiVersion": "other.io/v1", "kind": "Cluster", "name": "west", "uid": "uid-west"}
    foreign = with_value(secret(), [other_kind], "metadata", "ownerReferences")

    assert not is_claimed(odd)
    assert not belongs_to(foreign, cluster())
    assert not belongs_to(secret(("west", "")), with_metadata(cluster(), uid=None))


def test_labels_taints_and_regions_move_no_credentials() -> None:
    before = cluster(insecureSkipTLSVerification=False)
    after = with_metadata(cluster(region="eu", taints=[{"key": "a"}], proxyURL=""), labels={})

    assert changed_fields(after, before) == ()


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        ({"apiEndpoint": None}, "apiEndpoint"),
        ({"secretRef": {"namespace": "karmada-cluster", "name": "east"}}, "secretRef"),
        ({"impersonatorSecretRef": {"name": "x"}}, "impersonatorSecretRef"),
        ({"insecureSkipTLSVerification": True}, "insecureSkipTLSVerification"),
        ({"proxyURL": "http://p"}, "proxyURL"),
        ({"proxyHeader": {"A": "b"}}, "proxyHeader"),
        ({"syncMode": "Pull"}, "syncMode"),
    ],
)
def test_each_field_that_says_where_they_go_counts(spec: Object, changed: str) -> None:
    assert changed_fields(cluster(**spec), cluster()) == (changed,)


def test_a_new_cluster_counts_by_what_it_says() -> None:
    assert changed_fields({"spec": {"syncMode": "Pull", "id": "1"}}, None) == ()
    assert changed_fields(cluster(), None) == ("apiEndpoint",)


def test_a_cluster_without_an_address_is_told_so() -> None:
    assert endpoint_problem("") == "is empty"
