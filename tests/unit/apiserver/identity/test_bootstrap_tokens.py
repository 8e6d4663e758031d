"""Bootstrap tokens: who gets in, with what, and for how long."""

import re

import pytest
from tests.unit.apiserver.identity.subjects import MemoryHub

from clusterspace.apiserver.identity.bearer_tokens import API_AUDIENCE, Login, RefusedToken
from clusterspace.apiserver.identity.bootstrap_tokens import (
    CLUSTER,
    TYPE,
    BootstrapTokens,
    cluster_token_secret,
    forget_expired_tokens,
)
from clusterspace.apiserver.identity.following import secret_text
from clusterspace.kube.objects import Object
from clusterspace.kube.times import format_time

HERE = (API_AUDIENCE,)
TOKEN = "abcdef.0123456789abcdef"
DATA = {
    "token-id": "abcdef",
    "token-secret": "0123456789abcdef",
    "usage-bootstrap-authentication": "true",
}
STRONG = "ourtok." + "k" * 26


async def hub_with(data: dict[str, str], **secret: object) -> MemoryHub:
    hub = MemoryHub()
    await hub.create_namespace("kube-system")
    given = {"secret_type": TYPE, **secret}
    await hub.create_secret("kube-system", "bootstrap-token-abcdef", data, **given)  # pyright: ignore[reportArgumentType]
    return hub


async def answer(hub: MemoryHub, token: str = TOKEN) -> Login | None:
    try:
        return await BootstrapTokens(hub.state).check(token, HERE)
    except RefusedToken:
        return None


async def test_a_token_logs_in_with_its_groups():
    groups = "system:bootstrappers:west,system:bootstrappers:east"
    hub = await hub_with({**DATA, "auth-extra-groups": groups})

    login = await answer(hub)

    assert login is not None
    assert login.user.name == "system:bootstrap:abcdef"
    assert login.user.groups == (
        "system:bootstrappers",
        "system:bootstrappers:east",
        "system:bootstrappers:west",
        "system:authenticated",
    )


@pytest.mark.parametrize(
    "damage",
    [
        {"token-secret": ""},
        {"token-secret": "another000000000"},
        {"token-id": "zzzzzz"},
        {"usage-bootstrap-authentication": "false"},
        {"usage-bootstrap-authentication": ""},
        {"expiration": "2001-01-01T00:00:00Z"},
        {"expiration": "tomorrow"},
        {"auth-extra-groups": "system:masters"},
        {"auth-extra-groups": "system:bootstrappers:ok,system:masters"},
        {"auth-extra-groups": "system:bootstrappers:"},
    ],
)
async def test_a_secret_that_does_not_hold_a_good_token_lets_nobody_in(damage: dict[str, str]):
    assert await answer(await hub_with(DATA)) is not None

    assert await answer(await hub_with({**DATA, **damage})) is None


async def test_a_secret_of_another_type_lets_nobody_in():
    assert await answer(await hub_with(DATA, secret_type="Opaque")) is None


@pytest.mark.parametrize(
    "token",
    [
        "abcdef.0123456789abcdeX",
        "abcdef.0123456789abcde",
        "abcdef.",
        "ABCDEF.0123456789abcdef",
        "../../x.0123456789abcdef",
        "abcdef.0123456789abcdef\n",
        "",
    ],
)
async def test_a_wrong_token_is_nobodys(token: str):
    assert await answer(await hub_with(DATA), token) is None


async def test_a_token_ends_with_its_time():
    hub = await hub_with(DATA)
    ends = {**DATA, "token-id": "ending", "expiration": format_time(hub.clock.now() + 60)}
    await hub.create_secret("kube-system", "bootstrap-token-ending", ends, secret_type=TYPE)
    assert await answer(hub, "ending.0123456789abcdef") is not None

    await hub.clock.advance(60)

    assert await answer(hub, "ending.0123456789abcdef") is None


async def hub_with_cluster_token() -> MemoryHub:
    hub = MemoryHub()
    await hub.create_namespace("kube-system")
    await hub.create("", "secrets", cluster_token_secret(STRONG, "west", hub.clock.now()))
    return hub


async def test_tools_that_list_tokens_show_a_cluster_token_by_a_secret_that_lets_nobody_in():
    secret = cluster_token_secret(STRONG, "west", 0.0)
    shown = secret_text(secret, "token-secret")
    hub = await hub_with_cluster_token()

    # karmadactl and kubeadm leave out what has no secret of this form.
    assert re.fullmatch("[a-z0-9]{16}", shown)
    assert "west" in secret_text(secret, "description")
    assert shown not in STRONG
    assert await answer(hub, f"{STRONG.partition('.')[0]}.{shown}") is None


async def test_a_cluster_token_lives_an_hour():
    hub = await hub_with_cluster_token()
    assert await answer(hub, STRONG) is not None

    await hub.clock.advance(3600)

    assert await answer(hub, STRONG) is None


async def test_the_store_never_holds_the_secret_of_a_cluster_token():
    hub = await hub_with_cluster_token()

    page = await hub.state.store.range("/registry/")

    assert not any(b"k" * 26 in entry.value for entry in page.items)


@pytest.mark.parametrize("cluster", ["", "West", "a/b", "rbac-generator", "system:masters"])
async def test_a_token_for_what_is_no_cluster_lets_nobody_in(cluster: str):
    soon = format_time(2_000_000_000)
    hub = await hub_with({**DATA, "expiration": soon}, annotations={CLUSTER: cluster})

    assert await answer(hub) is None


async def test_a_cluster_token_without_an_end_lets_nobody_in():
    assert await answer(await hub_with(DATA, annotations={CLUSTER: "west"})) is None


def request(uid: str) -> Object:
    return {"metadata": {"name": f"west-{uid}", "uid": uid}}


async def test_a_spent_token_reads_its_request_and_nothing_else():
    hub = await hub_with_cluster_token()
    tokens = BootstrapTokens(hub.state)
    token = await tokens.find("ourtok")
    assert token is not None

    assert await tokens.spend(token, request("1"))

    login = await answer(hub, STRONG)
    assert login is not None
    assert login.only_path == "/apis/certificates.k8s.io/v1/certificatesigningrequests/west-1"


async def test_a_token_is_spent_once():
    hub = await hub_with_cluster_token()
    tokens = BootstrapTokens(hub.state)
    token = await tokens.find("ourtok")
    assert token is not None

    assert [await tokens.spend(token, request(uid)) for uid in ("1", "2", "1")] == [
        True,
        False,
        True,
    ]


async def test_expired_tokens_go_away_and_others_stay():
    hub = await hub_with_cluster_token()
    await hub.create_secret("kube-system", "bootstrap-token-abcdef", DATA, secret_type=TYPE)
    assert await forget_expired_tokens(hub.state) == 0

    await hub.clock.advance(3600)

    assert await forget_expired_tokens(hub.state) == 1
    assert await hub.find("", "secrets", "kube-system", "bootstrap-token-ourtok") is None
    assert await hub.find("", "secrets", "kube-system", "bootstrap-token-abcdef") is not None


@pytest.mark.parametrize(("token", "cluster"), [("short", "west"), (STRONG, "Not A Name")])
def test_a_cluster_token_needs_its_form_and_a_cluster(token: str, cluster: str):
    with pytest.raises(ValueError, match="one cluster"):
        cluster_token_secret(token, cluster, 0.0)
