"""A pull join trusts only the hub of its pin, and refuses what belongs to others."""

from base64 import b64encode
from typing import NoReturn

import msgspec
import pytest
from tests.unit.fleet.membership.agent_certificates import keyed_certificate
from tests.unit.fleet.membership.fleet_objects import cluster

from clusterspace.errors import CannotJoin, UnusableKubeconfig
from clusterspace.fleet.membership.pull_join import (
    RegisterRequest,
    find_hub,
    pinned_authority,
    pins_of,
    refuse_other_agent,
    same_cluster,
    server_of,
)
from clusterspace.kube.objects import Object, with_metadata


def cluster_info(authority: bytes) -> str:
    target = {
        "server": "https://hub",
        "certificate-authority-data": b64encode(authority).decode(),
    }
    return msgspec.yaml.encode({"clusters": [{"name": "", "cluster": target}]}).decode()


def test_of_several_authorities_only_the_pinned_one_is_trusted() -> None:
    ours, other = keyed_certificate().certificate, keyed_certificate().certificate
    (pin,) = pins_of(ours)

    assert pinned_authority(cluster_info(other + ours), pin) == ours


def test_an_authority_with_the_same_name_and_another_key_is_not_trusted() -> None:
    (pin,) = pins_of(keyed_certificate(name="clusterspace").certificate)
    impostor = keyed_certificate(name="clusterspace").certificate

    assert pinned_authority(cluster_info(impostor), pin) == b""


def test_an_answer_that_names_no_authority_is_not_trusted() -> None:
    assert pinned_authority("", "sha256:" + "0" * 64) == b""
    with pytest.raises(UnusableKubeconfig, match="no certificates that can be read"):
        pinned_authority(cluster_info(b"nonsense"), "sha256:" + "0" * 64)


def test_an_address_may_be_given_with_or_without_its_scheme() -> None:
    assert server_of("hub.example:6443") == "https://hub.example:6443"
    assert server_of("https://hub.example/fleet/") == "https://hub.example/fleet"


@pytest.mark.parametrize("pin", ["", "sha256:00", "md5:" + "0" * 32, "0" * 64])
async def test_a_fingerprint_that_pins_nothing_is_refused_before_anybody_is_asked(pin: str) -> None:
    with pytest.raises(CannotJoin, match="64 hexadecimal digits"):
        await find_hub("west", "hub:6443", pin, open_client=_nobody)


async def test_a_hub_without_tls_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(CannotJoin, match="not reached over TLS"):
        await find_hub("west", "http://hub:80", "sha256:" + "0" * 64, open_client=_nobody)


def _nobody(settings: object) -> NoReturn:
    raise AssertionError(f"{settings} was asked")


REQUEST = RegisterRequest("west", "hub:6443", "sha256:00", "abcdef.secret")


def registration(name: str = "west", hub: str = "sha256:00") -> Object:
    marks = {"clusterspace.io/cluster": name, "clusterspace.io/hub-id": hub}
    return {"metadata": {"name": "karmada-kubeconfig", "annotations": marks}}


def test_a_member_may_register_for_the_first_time_and_again() -> None:
    refuse_other_agent(REQUEST, None)
    refuse_other_agent(REQUEST, registration())


@pytest.mark.parametrize(
    "other",
    [
        registration(name="east"),
        registration(hub="sha256:11"),
        {"metadata": {"name": "karmada-kubeconfig"}},
    ],
    ids=["another name", "another hub", "a Karmada's agent"],
)
def test_a_member_with_another_agent_is_refused(other: Object) -> None:
    with pytest.raises(CannotJoin, match="unregister it there first"):
        refuse_other_agent(REQUEST, other)


def test_a_cluster_that_registered_before_is_known_again() -> None:
    known = cluster(mode="Pull", cluster_id="id-1")

    assert same_cluster(known, "west", "id-1") is known


def test_the_name_of_another_cluster_is_refused() -> None:
    with pytest.raises(CannotJoin, match="belongs to another cluster, with the ID id-2"):
        same_cluster(cluster(mode="Pull", cluster_id="id-2"), "west", "id-1")


def test_a_registration_of_a_leaving_cluster_is_refused_with_what_to_do() -> None:
    known = cluster(mode="Pull", cluster_id="id-1")
    leaving = with_metadata(known, name="west", deletionTimestamp="2026-01-01T00:00:00Z")

    with pytest.raises(CannotJoin, match=r"new token\. `clusterspace unregister west` waits"):
        same_cluster(leaving, "west", "id-1")


def test_a_cluster_the_hub_reaches_itself_is_refused() -> None:
    with pytest.raises(CannotJoin, match="unjoin it first"):
        same_cluster(cluster(mode="Push", cluster_id="id-1"), "west", "id-1")


def test_a_token_is_not_shown_in_logs() -> None:
    assert "secret" not in repr(REQUEST)
