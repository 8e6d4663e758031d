"""Secrets that hold a token: filled in, and removed with their account."""

import asyncio

from tests.unit.apiserver.identity.subjects import AUTHORITY, MemoryHub, value_in

from clusterspace.apiserver.identity.authority import TrustBundle
from clusterspace.apiserver.identity.bearer_tokens import API_AUDIENCE
from clusterspace.apiserver.identity.service_account_tokens import (
    ServiceAccountTokens,
    SigningKey,
    TokenKeys,
)
from clusterspace.apiserver.identity.service_accounts import (
    ACCOUNT_NAME,
    ACCOUNT_UID,
    TYPE,
    TokenSecretPlan,
    TokenSecrets,
    plan_secret,
)
from clusterspace.kube.objects import Object, annotations_of, uid_of


class Subject:
    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.tokens = ServiceAccountTokens(self.hub.state, TokenKeys(SigningKey.create()))
        self.controller = TokenSecrets(self.hub.state, self.tokens, TrustBundle(AUTHORITY))

    async def start(self) -> "Subject":
        await self.hub.create_namespace("apps")
        await self.hub.create_account("apps", "bot")
        return self

    async def create_secret(self, name: str, account: str) -> Object:
        annotations = {ACCOUNT_NAME: account}
        return await self.hub.create_secret(
            "apps", name, {}, secret_type=TYPE, annotations=annotations
        )


async def test_a_token_secret_is_filled_in():
    subject = await Subject().start()
    await subject.create_secret("held", "bot")

    await subject.controller.look_at_secret("apps", "held")

    secret = await subject.hub.get("", "secrets", "apps", "held")
    account = await subject.hub.get("", "serviceaccounts", "apps", "bot")
    assert value_in(secret, "ca.crt") == AUTHORITY.decode()
    assert value_in(secret, "namespace") == "apps"
    assert annotations_of(secret)[ACCOUNT_UID] == uid_of(account)
    login = await subject.tokens.check(value_in(secret, "token"), (API_AUDIENCE,))
    assert login is not None
    assert login.user.name == "system:serviceaccount:apps:bot"


async def test_a_filled_secret_keeps_its_token():
    subject = await Subject().start()
    await subject.create_secret("held", "bot")
    await subject.controller.look_at_secret("apps", "held")
    before = await subject.hub.get("", "secrets", "apps", "held")

    await subject.controller.look_at_secret("apps", "held")

    assert await subject.hub.get("", "secrets", "apps", "held") == before


async def test_a_secret_whose_account_is_not_there_is_removed():
    subject = await Subject().start()
    await subject.create_secret("held", "ghost")

    await subject.controller.look_at_secret("apps", "held")

    assert await subject.hub.find("", "secrets", "apps", "held") is None


async def test_other_secrets_are_left_alone():
    subject = await Subject().start()
    await subject.hub.create_secret(
        "apps", "plain", {"a": "b"}, annotations={ACCOUNT_NAME: "ghost"}
    )

    await subject.controller.look_at_secret("apps", "plain")

    assert value_in(await subject.hub.get("", "secrets", "apps", "plain"), "a") == "b"


async def test_the_secret_goes_when_its_account_goes():
    subject = await Subject().start()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(subject.controller.run())
        await subject.create_secret("held", "bot")
        await subject.hub.clock.advance(1)
        assert value_in(await subject.hub.get("", "secrets", "apps", "held"), "token")

        await subject.hub.delete("", "serviceaccounts", "apps", "bot")
        await subject.hub.clock.advance(1)
        assert await subject.hub.find("", "secrets", "apps", "held") is None
        running.cancel()


def test_an_account_made_anew_is_not_the_one_the_secret_was_for():
    secret: Object = {"type": TYPE, "metadata": {"annotations": {ACCOUNT_UID: "old"}}}

    assert plan_secret(secret, {"metadata": {"uid": "new"}}, AUTHORITY) is TokenSecretPlan.REMOVE


def test_a_secret_that_is_being_deleted_is_left_to_end():
    secret: Object = {"type": TYPE, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}

    assert plan_secret(secret, None, AUTHORITY) is TokenSecretPlan.NOTHING
