"""What a registration puts on the member, and what an agent reads of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.membership.agent_certificates import keyed_certificate

from clusterspace.errors import UnusableKubeconfig
from clusterspace.fleet.membership import agent_manifests, names
from clusterspace.fleet.membership.agent_manifests import read_registration, registration_secret
from clusterspace.fleet.membership.hub_discovery import FoundHub
from clusterspace.fleet.membership.manifests import NOWHERE, Location
from clusterspace.kube.objects import annotations_of, with_metadata, with_value

HELD = keyed_certificate()
HUB = FoundHub("https://hub.example:6443", HELD.certificate)


@given(st.from_regex(r"[a-z][a-z0-9-]{0,40}[a-z0-9]", fullmatch=True))
def test_an_agent_reads_what_the_registration_wrote(cluster_name: str) -> None:
    read = read_registration(registration_secret(cluster_name, HUB, HELD, "sha256:00"))

    assert (read.cluster_name, read.hub.server) == (cluster_name, HUB.server)
    assert (read.authority, read.held) == (HUB.authority, HELD)
    assert not read.hub.trust.skips_verification


def test_a_registration_of_somebody_else_is_refused() -> None:
    secret = registration_secret("west", HUB, HELD, "sha256:00")

    with pytest.raises(UnusableKubeconfig, match="which cluster this is"):
        read_registration(with_metadata(secret, annotations={}))
    with pytest.raises(UnusableKubeconfig, match="karmada-kubeconfig"):
        read_registration(with_value(secret, {}, "data"))


def test_everything_on_the_member_carries_the_mark_of_its_hub() -> None:
    mark = "sha256:00"
    made = [
        agent_manifests.namespace(mark),
        agent_manifests.account(mark),
        agent_manifests.role(mark),
        agent_manifests.role_binding(mark),
        agent_manifests.deployment("clusterspace:1", mark),
        registration_secret("west", HUB, HELD, mark),
    ]

    assert {annotations_of(each)[names.HUB_MARK] for each in made} == {mark}


def test_the_hub_is_given_no_way_into_a_pull_cluster() -> None:
    cluster = agent_manifests.cluster("west", "id-1", NOWHERE)

    assert cluster["spec"] == {"syncMode": "Pull", "id": "id-1"}


def test_a_pull_cluster_says_where_it_runs() -> None:
    cluster = agent_manifests.cluster("west", "id-1", Location("acme", "north", ("n1", "n2")))

    assert cluster["spec"]["zones"] == ["n1", "n2"]
    assert (cluster["spec"]["provider"], cluster["spec"]["region"]) == ("acme", "north")
