"""A join says what it will do, and refuses what cannot work."""

from dataclasses import replace

import pytest
from tests.unit.fleet.membership.fleet_objects import cluster

from clusterspace.client.settings import ConnectionSettings, Pem, Trust
from clusterspace.errors import CannotJoin, CredentialsUnusable
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.connections import settings_of
from clusterspace.fleet.membership.member_access import AccountToken, ClusterIdentity, Tokens
from clusterspace.fleet.membership.push_join import (
    JoinRequest,
    Preflight,
    endpoint_of,
    refuse_request,
    secrets_for,
    steps_of,
)

MEMBER = ConnectionSettings("west", "https://west:6443", trust=Trust(Pem(b"authority")))
FOUND = Preflight("hub-id", ClusterIdentity("uid-1"), needs_property=False, known=None)


def test_the_steps_are_told_before_they_are_taken() -> None:
    assert steps_of("west", FOUND)[-1] == "create cluster west with the ID uid-1 on the hub"
    again = replace(FOUND, known=cluster(), needs_property=True)
    assert steps_of("west", again)[0] == "create ClusterProperty id.k8s.io on the member"
    assert steps_of("west", again)[-1] == "refresh cluster west, which has joined before"


def test_a_server_name_that_a_cluster_cannot_hold_is_refused() -> None:
    named = replace(MEMBER, trust=replace(MEMBER.trust, server_name="inside"))

    with pytest.raises(CannotJoin, match="tls-server-name"):
        refuse_request(JoinRequest("west", named))
    refuse_request(JoinRequest("west", MEMBER))


def test_the_hub_reaches_a_member_as_the_join_did() -> None:
    endpoint = endpoint_of(MEMBER)
    tokens = Tokens(AccountToken(b"own"), AccountToken(b"others"))
    own, impersonator = secrets_for("west", endpoint, tokens)
    wanted = manifests.cluster("west", "uid-1", endpoint, manifests.NOWHERE)

    settings = settings_of(wanted, own)

    assert settings.server == MEMBER.server
    assert settings.trust == MEMBER.trust
    assert settings.identity.token == "own"
    assert settings_of(wanted, impersonator).identity.token == "others"


def test_credentials_without_a_token_are_no_credentials() -> None:
    wanted = manifests.cluster("west", "uid-1", endpoint_of(MEMBER), manifests.NOWHERE)

    with pytest.raises(CredentialsUnusable, match="holds no token"):
        settings_of(wanted, manifests.credentials_secret("west", {}))


def test_an_authority_that_is_not_checked_is_not_used() -> None:
    careless = replace(MEMBER, trust=Trust(skips_verification=True))
    wanted = manifests.cluster("west", "uid-1", endpoint_of(careless), manifests.NOWHERE)
    secret = manifests.credentials_secret("west", {"token": b"own", "caBundle": b"whose"})

    trust = settings_of(wanted, secret).trust

    assert trust.skips_verification
    assert not trust.authority


def test_nothing_in_a_secret_or_token_is_shown() -> None:
    shown = repr(Tokens(AccountToken(b"very-secret"), AccountToken(b"very-secret")))

    assert "very-secret" not in shown
