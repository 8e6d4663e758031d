"""Single sign-on against an issuer that is a process of its own, over TLS."""

import asyncio
import json
import os
import re
import shutil
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
import pytest_asyncio
import yaml
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.component.issuers import ROOT, Issuer, running_issuer

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.users import AUTHENTICATED
from clusterspace.apiserver.identity.bearer_tokens import API_AUDIENCE, RefusedToken
from clusterspace.apiserver.identity.oidc import ASK_AGAIN_SECONDS, OidcTokens, read_issuers
from clusterspace.errors import UnusableConfiguration
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.stage import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def issuer(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Issuer]:
    async with running_issuer(tmp_path_factory.mktemp("issuer")) as running:
        yield running


@pytest.fixture
async def fresh(issuer: Issuer) -> AsyncIterator[Issuer]:
    """The issuer as it was: a test may roll its keys."""
    key, key_id = issuer.key, issuer.key_id
    yield issuer
    issuer.roll(key, key_id)


def tokens(config: Any, clock: Any = None) -> OidcTokens:
    return OidcTokens(read_issuers(config), clock or SystemClock())


async def user_of(found: OidcTokens, token: str) -> Any:
    login = await found.check(token, (API_AUDIENCE,))
    return None if login is None else login.user


async def test_a_token_of_the_issuer_logs_its_user_in(issuer: Issuer) -> None:
    expressions = {
        "username": {"expression": "claims.name + '@' + claims.org"},
        "groups": {"expression": "claims.teams.map(t, 'team:' + t)"},
        "uid": {"claim": "sub"},
        "extra": [{"key": "example.com/org", "valueExpression": "claims.org"}],
    }
    found = tokens(issuer.config(claimMappings=expressions))

    user = await user_of(found, issuer.token(name="jane", org="shop", teams=["a", "b"]))

    assert (user.name, user.uid) == ("jane@shop", "jane")
    assert user.groups == ("team:a", "team:b", AUTHENTICATED)
    assert dict(user.extra) == {"example.com/org": ("shop",)}


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": 1}, "has expired"),
        ({"exp": None}, "has expired"),
        ({"exp": "never"}, "has expired"),
        ({"nbf": time.time() + 3600}, "does not count yet"),
        ({"aud": "others"}, "not meant for this audience"),
        ({"aud": ["others", {"kubernetes": 1}]}, "not meant for this audience"),
        ({"aud": None}, "not meant for this audience"),
        ({"sub": None}, "names no user"),
        ({"sub": ""}, "names no user"),
        ({"sub": ["jane"]}, "names no user"),
        ({"groups": {"a": 1}}, "neither a text nor a list of texts"),
        ({"groups": ["a", 5]}, "neither a text nor a list of texts"),
        ({"groups": ["system:masters"]}, "given by no issuer"),
        ({"groups": "system:nodes"}, "given by no issuer"),
        ({"hd": "evil.example.com"}, "value does not match"),
        ({"hd": None}, "required claim hd not present"),
        ({"level": 1}, "level is too low"),
        ({"level": None}, "resulted in error"),
        ({"level": "high"}, "resulted in error"),
    ],
)
async def test_claims_that_do_not_do_are_refused(
    issuer: Issuer, claims: dict[str, Any], why: str
) -> None:
    rules = [
        {"claim": "hd", "requiredValue": "example.com"},
        {"expression": "claims.level > 1", "message": "level is too low"},
    ]
    groups = {"claim": "groups", "prefix": ""}
    found = tokens(issuer.config(claimValidationRules=rules, claimMappings={"groups": groups}))
    usual: dict[str, Any] = {"hd": "example.com", "level": 2}
    assert (await user_of(found, issuer.token(**usual))).name == "sso:jane"

    with pytest.raises(RefusedToken, match=why):
        await user_of(found, issuer.token(**{**usual, **claims}))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("another key", "signature does not fit"),
        ("another id", "no such key"),
        ("its public key as a secret", "'HS256' is not allowed"),
        ("nothing", "'none' is not allowed"),
        ("another kind of key", "no such key"),
    ],
)
async def test_a_forged_token_is_refused(issuer: Issuer, how: str, why: str) -> None:
    found = tokens(issuer.config())
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    body = {"iss": issuer.url, "sub": "jane", "aud": "kubernetes", "exp": time.time() + 600}
    forged = {
        "another key": lambda: issuer.token(key=other),
        "another id": lambda: issuer.token("two"),
        "its public key as a secret": lambda: jwt.encode(body, "x" * 32, "HS256", {"kid": "one"}),
        "nothing": lambda: jwt.encode(body, "", "none", {"kid": "one"}),
        "another kind of key": lambda: jwt.encode(
            body, ec.generate_private_key(ec.SECP256R1()), "ES256", {"kid": "one"}
        ),
    }[how]()

    with pytest.raises(RefusedToken, match=why):
        await user_of(found, forged)


async def test_a_name_of_the_cluster_is_given_by_no_issuer(issuer: Issuer) -> None:
    found = tokens(issuer.config(claimMappings={"username": {"claim": "sub", "prefix": ""}}))

    with pytest.raises(RefusedToken, match="system: are given by no issuer"):
        await user_of(found, issuer.token(sub="system:admin"))


async def test_an_address_that_nobody_verified_names_nobody(issuer: Issuer) -> None:
    found = tokens(issuer.config(claimMappings={"username": {"claim": "email", "prefix": ""}}))
    mail = {"email": "jane@example.com"}

    assert (await user_of(found, issuer.token(**mail, email_verified=True))).name == mail["email"]
    with pytest.raises(RefusedToken, match="email not verified"):
        await user_of(found, issuer.token(**mail, email_verified=False))


async def test_rules_about_users_have_the_last_word(issuer: Issuer) -> None:
    rule = {"expression": "!user.username.startsWith('sso:root')", "message": "not root"}
    found = tokens(issuer.config(userValidationRules=[rule]))

    assert await user_of(found, issuer.token())
    with pytest.raises(RefusedToken, match="oidc: not root"):
        await user_of(found, issuer.token(sub="root"))


async def test_keys_roll_and_strangers_cost_the_issuer_nothing(fresh: Issuer) -> None:
    clock = ManualClock()
    found = tokens(fresh.config(), clock)
    before = fresh.asked()
    assert await user_of(found, fresh.token(exp=clock.now() + 600))
    for number in range(20):
        with pytest.raises(RefusedToken, match="no such key"):
            await user_of(found, fresh.token(f"{number}", exp=clock.now() + 600))
    assert fresh.asked() == before + 2, "discovery and keys, once"

    fresh.roll(ec.generate_private_key(ec.SECP256R1()), "two")
    await clock.advance(ASK_AGAIN_SECONDS)

    logins = await asyncio.gather(
        *(user_of(found, fresh.token(exp=clock.now() + 600, jti=str(n))) for n in range(10))
    )
    assert all(logins)
    assert fresh.asked() == before + 4


async def test_an_issuer_that_is_away_is_named_and_tokens_of_known_keys_still_count(
    fresh: Issuer,
) -> None:
    found = tokens(fresh.config())
    assert await user_of(found, fresh.token())
    (fresh.directory / "discovery.json").unlink()

    assert await user_of(found, fresh.token(sub="joe"))
    with pytest.raises(RefusedToken, match=r"fetching keys: https://127"):
        await user_of(tokens(fresh.config()), fresh.token())


@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://evil.example.com"},
        {"jwks_uri": "http://127.0.0.1/keys"},
        {"jwks_uri": 5},
    ],
)
async def test_a_discovery_document_that_leads_elsewhere_is_not_followed(
    fresh: Issuer, discovery: dict[str, Any]
) -> None:
    fresh.publish(**discovery)

    with pytest.raises(RefusedToken, match="fetching keys"):
        await user_of(tokens(fresh.config()), fresh.token())


async def test_discovery_may_be_elsewhere(issuer: Issuer) -> None:
    elsewhere = {"discoveryURL": f"{issuer.url}/elsewhere/discovery"}

    assert await user_of(tokens(issuer.config(issuer=elsewhere)), issuer.token())


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "x" * 20_000, "é.é.é"])
async def test_what_is_no_token_of_theirs_is_left_to_others(issuer: Issuer, token: str) -> None:
    found = tokens(issuer.config())

    assert await user_of(found, token) is None
    assert await user_of(found, issuer.token(iss="https://other.example.com")) is None
    assert await found.check(issuer.token(), ("somebody else",)) is None


@asynccontextmanager
async def hub_with(directory: Path, config: Any) -> AsyncGenerator[str]:
    file = directory / "sso.yaml"
    file.write_text(yaml.safe_dump(config))
    settings = HubSettings(directory / "data", store="memory", port=0, authentication_file=file)
    async with running_hub(settings) as running:
        yield running.url


async def test_kubectl_logs_in_with_a_plug_in(issuer: Issuer, tmp_path: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl in PATH")
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": issuer.token()},
    }
    plugin = tmp_path / "login"
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    async with hub_with(tmp_path, issuer.config()) as url:
        run = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "interactiveMode": "Never",
        }
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sso",
            "clusters": [
                {"name": "hub", "cluster": {"server": url, "insecure-skip-tls-verify": True}}
            ],
            "users": [{"name": "me", "user": {"exec": run}}],
            "contexts": [{"name": "sso", "context": {"cluster": "hub", "user": "me"}}],
        }
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(kubeconfig))
        asking = await asyncio.create_subprocess_exec(
            *(kubectl, "--kubeconfig", str(file), "auth", "whoami", "-o", "json"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        async with asyncio.timeout(PATIENCE):
            answer, _ = await asking.communicate()

    assert json.loads(answer)["status"]["userInfo"]["username"] == "sso:jane"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"issuer": {"url": "http://sso.example.com"}}, r"issuer.url: it has to be an https"),
        ({"issuer": {"url": ""}}, r"issuer.url: it has to be an https"),
        ({"issuer": {"audiences": []}}, r"issuer.audiences: at least one"),
        ({"issuer": {"audiences": ["a", "b"]}}, r"audienceMatchPolicy: it has to be MatchAny"),
        ({"issuer": {"certificateAuthority": "x"}}, r"certificateAuthority: it is no PEM"),
        ({"issuer": {"odd": 1}}, r"issuer: odd is not known here"),
        ({"claimMappings": {"username": {}}}, r"username: a claim or an expression"),
        ({"claimMappings": {"username": {"claim": "sub"}}}, r"username.prefix: it has to be there"),
        ({"claimMappings": {"username": {"expression": "claims."}}}, "compilation failed"),
        ({"claimMappings": {"username": {"expression": "1"}}}, "it has to give string, and gives"),
        ({"claimMappings": {"username": {"expression": "claims.email"}}}, "claims.email_verified"),
        ({"claimMappings": {"extra": [{"key": "Org"}]}}, r"extra\[0\].key"),
        ({"claimValidationRules": [{}]}, "a claim or an expression has to be there"),
        ({"claimValidationRules": [{"expression": "'x'"}]}, "it has to give bool"),
        ({"userValidationRules": [{"expression": "user.odd == ''"}]}, "compilation failed"),
    ],
)
async def test_a_bad_configuration_is_refused_with_the_place(
    issuer: Issuer, entry: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnusableConfiguration, match=words):
        read_issuers(issuer.config(**entry))


async def test_the_configuration_on_the_page_is_one() -> None:
    page = ROOT / "docs" / "guides" / "single-sign-on.md"
    (block,) = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)

    (read,) = read_issuers(yaml.safe_load(block))

    claims = {"email": "jane@example.com", "email_verified": True, "hd": "example.com"}
    assert read.user_of({**claims, "groups": ["admins"]}).groups[0] == "sso:admins"
