"""Who we are at the hub, when the hub writes its kubeconfig anew."""

from dataclasses import replace

from clusterspace.client.settings import (
    REREAD_SECONDS,
    AuthInfo,
    ConnectionSettings,
    KubeconfigCredentials,
    Pem,
)
from clusterspace.errors import UnusableKubeconfig
from clusterspace.testing.clocks import ManualClock


class File:
    """A kubeconfig that the test writes."""

    def __init__(self) -> None:
        identity = AuthInfo(certificate=Pem(b"first"), key=Pem(b"key"))
        self.settings = ConnectionSettings("hub", "https://hub.example", identity=identity)
        self.is_away = False

    def read(self) -> ConnectionSettings:
        if self.is_away:
            raise UnusableKubeconfig("is not there", place="kubeconfig")
        return self.settings

    def renew(self, certificate: bytes) -> None:
        identity = AuthInfo(certificate=Pem(certificate), key=Pem(b"key"))
        self.settings = replace(self.settings, identity=identity)


async def shown(identity: KubeconfigCredentials) -> bytes:
    return (await identity.get()).material.certificate


async def test_a_renewed_certificate_is_shown_within_a_minute() -> None:
    clock, file = ManualClock(), File()
    identity = KubeconfigCredentials(file.read, file.settings, clock)
    file.renew(b"second")

    assert await shown(identity) == b"first"
    await clock.advance(REREAD_SECONDS)
    assert await shown(identity) == b"second"


async def test_a_refused_certificate_is_looked_up_at_once() -> None:
    clock, file = ManualClock(), File()
    identity = KubeconfigCredentials(file.read, file.settings, clock)
    file.renew(b"second")

    assert identity.refused()
    assert await shown(identity) == b"second"


async def test_a_kubeconfig_that_is_away_for_a_moment_changes_nothing() -> None:
    clock, file = ManualClock(), File()
    identity = KubeconfigCredentials(file.read, file.settings, clock)
    file.is_away = True
    await clock.advance(REREAD_SECONDS)

    assert await shown(identity) == b"first"
    file.is_away = False
    file.renew(b"second")
    await clock.advance(REREAD_SECONDS)
    assert await shown(identity) == b"second"
