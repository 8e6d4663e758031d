from clusterspace.client.settings import (
    AuthInfo,
    ConnectionSettings,
    Credentials,
    ExecPlugin,
    Pem,
    PluginAnswer,
    PluginCache,
)
from clusterspace.testing.clocks import ManualClock

PLUGIN = ExecPlugin("client.authentication.k8s.io/v1", "login")


class Plugin:
    """Gives a new token each time, good for so long."""

    def __init__(self, clock: ManualClock, *, lasts: float | None) -> None:
        self._clock = clock
        self._lasts = lasts
        self.asked = 0

    async def ask(self) -> PluginAnswer:
        self.asked += 1
        expires_at = None if self._lasts is None else self._clock.now() + self._lasts
        return PluginAnswer(token=f"token-{self.asked}", expires_at=expires_at)


def settings(identity: AuthInfo) -> ConnectionSettings:
    return ConnectionSettings("west", "https://west", identity=identity)


async def test_an_answer_without_expiry_is_good_until_it_is_refused():
    clock = ManualClock()
    plugin = Plugin(clock, lasts=None)
    cache = PluginCache(plugin.ask, clock)

    await cache.read()
    await clock.advance(1_000_000)
    assert (await cache.read()).token == "token-1"
    cache.forget()

    assert (await cache.read()).token == "token-2"


async def test_an_answer_is_renewed_before_it_expires():
    clock = ManualClock()
    plugin = Plugin(clock, lasts=300)
    cache = PluginCache(plugin.ask, clock)

    for _ in range(7):
        await cache.read()
        await clock.advance(60)

    assert plugin.asked == 2


async def test_a_plugin_s_token_wins_and_its_certificate_is_material():
    async def ask() -> PluginAnswer:
        return PluginAnswer(token="theirs", certificate=b"C", key=b"K")

    identity = AuthInfo(token="ours", exec_plugin=PLUGIN, certificate=Pem(data=b"c"))
    credential = await Credentials(settings(identity), ManualClock(), ask).get()

    assert credential.authorization == "Bearer theirs"
    assert (credential.material.certificate, credential.material.key) == (b"C", b"K")


async def test_a_name_and_password_are_basic_and_nothing_is_nothing():
    named = Credentials(settings(AuthInfo(username="u", password="p")), ManualClock())
    nobody = Credentials(settings(AuthInfo()), ManualClock())

    assert (await named.get()).authorization == "Basic dTpw"
    assert (await nobody.get()).authorization == ""
    assert not named.refused()
