"""Encryption at rest: what a store keeps of the resources that an EncryptionConfiguration names.

The configuration is kube-apiserver's, and so is what is written: `k8s:enc:PROVIDER:VERSION:KEY:`
and the sealed bytes. Of the providers that are listed for a resource the first seals what is
written, and all open what was. So a key is rolled without anybody noticing:

    keys: [new, old]    everything can be opened; what is written from now on is sealed with `new`
    store rewrite       everything is written once more
    keys: [new]         nothing is left that needs `old`

The key of an object is authenticated with it: bytes that are moved to another key do not open.
"""

import os
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from clusterspace.apiserver.store.interface import (
    Event,
    Guard,
    HistorySize,
    KeyValue,
    Page,
    Revision,
    Sink,
    Store,
    Subscription,
    Watch,
)
from clusterspace.apiserver.store.kms import KmsPlugin, KmsProvider
from clusterspace.errors import (
    CannotOpen,
    Compacted,
    StoreError,
    StoreUnreadable,
    WatcherEvicted,
)
from clusterspace.kube.configuration_files import SOME, Section, read_configuration

MARK: Final = b"k8s:enc:"
"""What every sealed value begins with; an object, which is JSON, never does."""

API_VERSION: Final = "apiserver.config.k8s.io/v1"
KIND: Final = "EncryptionConfiguration"
_ROOT: Final = "/registry/"

HUB_IDENTITY: Final = "/registry/clusterspace.io/hubs/identity"
"""Where hubs that share a store keep what makes them one: their authority and signing keys."""

_NONCE_BYTES: Final = 12
_MOST_LOOKS: Final = 10
"""A service that has another key each time it is asked is not waited for in vain."""


class Provider(Protocol):
    """Seals and opens values; `place` is the key they are stored at."""

    @property
    def prefix(self) -> bytes:
        """What its values begin with."""
        ...

    def seal(self, value: bytes, place: bytes) -> bytes:
        """Return the value as it is stored, its prefix included."""
        ...

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Return the value of stored bytes that begin with its prefix; CannotOpen."""
        ...

    def is_current(self, sealed: bytes) -> bool:
        """Whether it would seal the value the same way now."""
        ...

    async def prepare(self, sealed: Iterable[bytes]) -> bool:
        """Make ready for opening these values and for sealing; False when it was already."""
        ...

    async def refresh(self) -> bool:
        """Ask whether there is another key by now, and take it; return whether there was."""
        ...


class LocalKey:
    """A provider that has its key, and asks nobody for it."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix: Final = prefix

    def is_current(self, sealed: bytes) -> bool:
        """Whether it sealed the value."""
        return sealed.startswith(self.prefix)

    async def prepare(self, sealed: Iterable[bytes]) -> bool:
        """Do nothing: the key is there."""
        return False

    async def refresh(self) -> bool:
        """Do nothing: a key that is configured does not change."""
        return False


class Identity(LocalKey):
    """Values as they are."""

    def __init__(self) -> None:
        super().__init__(b"")

    def is_current(self, sealed: bytes) -> bool:
        """Whether no other provider sealed the value."""
        return not sealed.startswith(MARK)

    def seal(self, value: bytes, place: bytes) -> bytes:
        """Return the value."""
        return value

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Return the value, unless some other provider sealed it."""
        if sealed.startswith(MARK):
            raise CannotOpen
        return sealed


class AesGcm(LocalKey):
    """AES in Galois/Counter mode with one key."""

    def __init__(self, name: str, secret: bytes) -> None:
        super().__init__(MARK + b"aesgcm:v1:" + name.encode() + b":")
        self._cipher = AESGCM(secret)

    def seal(self, value: bytes, place: bytes) -> bytes:
        """Seal with a nonce of its own for every write."""
        nonce = os.urandom(_NONCE_BYTES)
        return self.prefix + nonce + self._cipher.encrypt(nonce, value, place)

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Open what was sealed for this very place."""
        body = sealed[len(self.prefix) :]
        try:
            return self._cipher.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], place)
        except (InvalidTag, ValueError) as error:
            raise CannotOpen from error


class SecretBox(LocalKey):
    """NaCl's secretbox, XSalsa20 and Poly1305, with one key. It does not authenticate the place."""

    def __init__(self, name: str, secret: bytes) -> None:
        from nacl.secret import SecretBox as Box  # 30 ms that other hubs need not pay

        super().__init__(MARK + b"secretbox:v1:" + name.encode() + b":")
        self._box = Box(secret)

    def seal(self, value: bytes, place: bytes) -> bytes:
        """Seal with a nonce of its own for every write."""
        return self.prefix + self._box.encrypt(value)

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Open what was sealed with this key."""
        from nacl.exceptions import CryptoError

        try:
            return self._box.decrypt(sealed[len(self.prefix) :])
        except (CryptoError, ValueError) as error:
            raise CannotOpen from error


@dataclass(frozen=True, slots=True)
class Rule:
    """Some resources, and the providers for them; the first one seals."""

    resources: tuple[str, ...]
    providers: tuple[Provider, ...]

    def covers(self, group: str, resource: str) -> bool:
        """Whether the rule is about a resource; the core group is the empty one."""
        named = {resource if not group else f"{resource}.{group}", f"*.{group}", "*.*"}
        return not named.isdisjoint(self.resources)


class Encryption:
    """Which provider seals what; without rules everything is kept as it is."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._found: dict[str, tuple[Provider, ...]] = {}

    def seal(self, key: str, value: bytes) -> bytes:
        """Return the value as it is to be stored at a key."""
        return self._providers(key)[0].seal(value, _place(key))

    def seals(self, key: str) -> bool:
        """Whether a value at this key is encrypted, and not merely kept."""
        return not isinstance(self._providers(key)[0], Identity)

    def is_current(self, key: str, stored: bytes) -> bool:
        """Whether a write would store the value with the same provider and the same key."""
        return self._providers(key)[0].is_current(stored)

    async def prepare(self, stored: Iterable[bytes]) -> bool:
        """Make ready for opening these values; False when all providers were already."""
        sealed = [each for each in stored if each.startswith(MARK)]
        return any([await each.prepare(sealed) for each in self._everything()])

    async def refresh(self) -> bool:
        """Ask services whether they have another key by now; return whether one had."""
        return any([await each.refresh() for each in self._everything()])

    def open(self, key: str, stored: bytes) -> bytes:
        """Return the value of what is stored at a key; StoreUnreadable when no key opens it."""
        # Kinds that were listed once and are no longer are opened by any provider there is.
        for provider in (*self._providers(key), *self._everything()):
            if stored.startswith(provider.prefix):
                try:
                    return provider.open(stored, _place(key))
                except CannotOpen:
                    continue  # two keys of one name, while one takes the place of the other
        kind, _, name = stored[len(MARK) : len(MARK) + 200].split(b":", 3)[:3]
        sealed_with = f"{kind.decode(errors='replace')} key {name.decode(errors='replace')!r}"
        raise StoreUnreadable(
            f"{key} is encrypted with {sealed_with}, and no key of the encryption "
            "configuration opens it: add the key again, behind those that are there"
        )

    def _providers(self, key: str) -> tuple[Provider, ...]:
        group, _, rest = key.removeprefix(_ROOT).partition("/")
        resource = rest.partition("/")[0]
        place = f"{group}/{resource}"
        found = self._found.get(place)
        if found is None:
            own = "" if group == "core" else group
            if key == HUB_IDENTITY:
                own, resource = "", "secrets"  # it is one, only that no request can read it
            found = next(
                (each.providers for each in self._rules if each.covers(own, resource)),
                (Identity(),),
            )
            self._found[place] = found
        return found

    def _everything(self) -> Iterable[Provider]:
        return (provider for rule in self._rules for provider in rule.providers)


def _place(key: str) -> bytes:
    return key.encode(errors="surrogatepass")  # the store below says why such a key cannot be


class HistoricStore(Store, Protocol):
    """A store that says how much of the past it holds."""

    @property
    def history(self) -> HistorySize:
        """How much of the past is held."""
        ...


# Values are sealed and opened here, at the edge of the store: the index below, its watchers, the
# log on the disk and every backup have sealed bytes only; all above sees objects. A key is rolled
# by three configurations, while everybody reads, writes and watches:
#
#     keys        what is there                   a list, now     a watch from before
#     [a]         all sealed with a               opens           opens
#     [b, a]      old a, new b                    opens           opens
#     rewrite     the present b, the past a too   opens           opens
#     [b]         the present b, the past a too   opens           evicted at the first event with a
#
# What must hold: no configuration is taken that leaves anything of the present closed (it is tried
# on all of it first), and none is taken in part: `_encryption` is replaced whole, in one step of
# the loop, so a page or a batch of events is opened by one configuration. The past may be closed by
# it. That is no error but a past that is forgotten early: readers of it are told to list again.
class EncryptedStore:
    """A store whose values are sealed; whoever reads sees them opened."""

    def __init__(self, store: HistoricStore, encryption: Encryption) -> None:
        self._store = store
        self._encryption = encryption

    @classmethod
    async def over(cls, store: HistoricStore, encryption: Encryption) -> Self:
        """Return the store opened; StoreUnreadable when there is anything that no key opens."""
        opened = cls(store, encryption)
        await opened.replace_keys(encryption)
        return opened

    async def replace_keys(self, encryption: Encryption) -> None:
        """Seal and open by another configuration from now on, if it opens all there is.

        StoreUnreadable when it does not; then nothing has changed.
        """
        # All of it is looked at, and not only the kinds that are configured: a key that is missing
        # is found out now, and not by whoever reads a Secret. What is kept of the past may still be
        # sealed with a key that is gone; who watches from there is told to list again.
        page = await self._store.range("")
        for _ in range(_MOST_LOOKS):
            if not await encryption.prepare(each.value for each in page.items):
                break
            # A service was waited for, and somebody may have written meanwhile, with a key that
            # these providers have not seen.
            page = await self._store.range("")
        for item in page.items:
            if item.value.startswith(MARK):
                encryption.open(item.key, item.value)
        # Nobody was waited for since the last look: nothing has been sealed with the old ones.
        self._encryption = encryption

    async def refresh_keys(self) -> bool:
        """Ask services whether they have another key by now; return whether one had."""
        return await self._encryption.refresh()

    @property
    def current_revision(self) -> Revision:
        """The newest revision a read can show."""
        return self._store.current_revision

    @property
    def oldest_revision(self) -> Revision:
        """The oldest revision that can still be read, and watched `after`."""
        return self._store.oldest_revision

    @property
    def inner(self) -> HistoricStore:
        """The store that has the values as they are sealed."""
        return self._store

    def seals(self, key: str) -> bool:
        """Whether what is put at a key is kept encrypted."""
        return self._encryption.seals(key)

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write to the same log."""
        return self._store.is_shared

    @property
    def is_reachable(self) -> bool:
        """Whether whoever keeps the log answered when last asked."""
        return self._store.is_reachable

    @property
    def refuses_writes(self) -> str:
        """Why writes are refused at present; empty when they are not."""
        return self._store.refuses_writes

    @property
    def history(self) -> HistorySize:
        """How much of the past is held."""
        return self._store.history

    async def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: Revision | None = None,
        guard: Guard | None = None,
    ) -> KeyValue:
        """Seal the value and set the key; return it opened."""
        # Sealed before the store is asked, so what waits in its queue is sealed by the keys of this
        # moment. A configuration that replaces them meanwhile must still have them further down, as
        # the roll above has.
        sealed = self._encryption.seal(key, value)
        return replace(
            await self._store.put(key, sealed, expected=expected, guard=guard), value=value
        )

    async def delete(self, key: str, *, expected: Revision, guard: Guard | None = None) -> KeyValue:
        """Delete the key and return its last value."""
        return self._opened(await self._store.delete(key, expected=expected, guard=guard))

    async def get(self, key: str, *, at: Revision | None = None) -> KeyValue | None:
        """Return the key as it is, or was at a revision."""
        found = await self._store.get(key, at=at)
        return None if found is None else self._opened_at(at, (found,))[0]

    async def sync(self) -> Revision:
        """Return when reads show all that was acknowledged anywhere before this call."""
        return await self._store.sync()

    async def is_stale(self, key: str) -> bool:
        """Whether the key is not sealed as a write would seal it."""
        found = await self._store.get(key)
        return found is not None and not self._encryption.is_current(key, found.value)

    async def range(
        self,
        prefix: str,
        *,
        start_after: str | None = None,
        limit: int | None = None,
        at: Revision | None = None,
    ) -> Page:
        """Return the keys with the prefix in order, opened."""
        page = await self._store.range(prefix, start_after=start_after, limit=limit, at=at)
        return replace(page, items=self._opened_at(at, page.items))

    async def count(self, prefix: str) -> int:
        """Return how many keys have the prefix now."""
        return await self._store.count(prefix)

    def watch(self, prefix: str, *, after: Revision) -> Watch:
        """Watch the keys with the prefix, opened."""
        return _OpenedWatch(self._store.watch(prefix, after=after), self._opened_events)

    def subscribe(self, prefix: str, *, after: Revision, sink: Sink) -> Subscription:
        """Deliver changes above the revision to a sink, opened."""
        return self._store.subscribe(
            prefix, after=after, sink=_OpeningSink(sink, self._opened_events)
        )

    async def compact(self, revision: Revision) -> None:
        """Forget every older revision."""
        await self._store.compact(revision)

    async def close(self) -> None:
        """Let go of everything."""
        await self._store.close()

    def _opened_at(
        self, revision: Revision | None, items: tuple[KeyValue, ...]
    ) -> tuple[KeyValue, ...]:
        """Open what was read; the past counts as forgotten when its keys are."""
        try:
            return tuple(map(self._opened, items))
        except StoreUnreadable:
            if revision is None:
                raise
            raise Compacted(revision, self.current_revision) from None

    def _opened(self, item: KeyValue) -> KeyValue:
        if not item.value.startswith(MARK):
            return item
        return replace(item, value=self._encryption.open(item.key, item.value))

    def _opened_events(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Open events; WatcherEvicted when they are of before the keys were replaced."""
        try:
            return tuple(
                Event(
                    each.type,
                    self._opened(each.item),
                    None if each.previous is None else self._opened(each.previous),
                )
                for each in events
            )
        except StoreUnreadable:
            why = "the keys of these events are gone from the encryption configuration: list again"
            raise WatcherEvicted(why) from None


_Open = Callable[[tuple[Event, ...]], tuple[Event, ...]]


class _OpenedWatch:
    def __init__(self, watch: Watch, opened: _Open) -> None:
        self._watch = watch
        self._opened = opened

    @property
    def revision(self) -> Revision:
        return self._watch.revision

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Event, ...]:
        return self._opened(await anext(self._watch))

    def close(self) -> None:
        self._watch.close()


# A sink is called in the step of the loop in which the store publishes, between other sinks: it
# must not raise for a value that does not open, or the store would take it for a bug of the
# subscriber. It ends its subscriber instead, once, and lets everything after that pass by.
class _OpeningSink:
    def __init__(self, sink: Sink, opened: _Open) -> None:
        self._sink = sink
        self._opened = opened
        self._has_ended = False

    def receive(self, events: tuple[Event, ...]) -> None:
        if self._has_ended:
            return  # the subscription below goes on until its owner closes it
        try:
            opened = self._opened(events)
        except WatcherEvicted as reason:
            self.end(reason)
        else:
            self._sink.receive(opened)

    def end(self, reason: StoreError) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._sink.end(reason)


# -- the configuration -------------------------------------------------------------------------


def read_encryption(document: Any) -> Encryption:
    """Read an EncryptionConfiguration; UnusableConfiguration names the place of what is wrong."""
    config = read_configuration(document, KIND, (API_VERSION,))
    config.require_only("apiVersion", "kind", "resources")
    rules: list[Rule] = []
    for rule in config.sections("resources", SOME):
        rule.require_only("resources", "providers")
        named = rule.texts("resources", SOME)
        for index, name in enumerate(named):
            if not name or name == "*" or name[0] == "." or "/" in name or name != name.lower():
                raise rule.refusal(
                    f"resources[{index}]",
                    f"{name!r} names no resource: say `secrets`, "
                    "`widgets.example.com`, `*.example.com`, `*.` for the core group, or `*.*`",
                )
        listed = rule.sections("providers", SOME)
        providers = tuple(provider for each in listed for provider in _providers_in(each))
        rules.append(Rule(named, providers))
    return Encryption(rules)


_SIZES: Final[Mapping[str, tuple[int, ...]]] = {"aesgcm": (16, 24, 32), "secretbox": (32,)}
_MAKERS: Final[Mapping[str, Callable[[str, bytes], Provider]]] = {
    "aesgcm": AesGcm,
    "secretbox": SecretBox,
}


def _providers_in(entry: Section) -> list[Provider]:
    if len(entry.fields) != 1:
        raise entry.refusal("", f"one provider has to be named, not {len(entry.fields)}")
    (kind,) = entry.fields
    if kind == "identity":
        return [Identity()]
    if kind == "kms":
        return [_kms(entry.section("kms"))]
    if kind not in _MAKERS:
        known = ", ".join((*_MAKERS, "kms", "identity"))
        raise entry.refusal("", f"{kind} is not supported here; there are {known}")
    providers: list[Provider] = []
    names: set[str] = set()
    for key in entry.section(kind).sections("keys", SOME):
        key.require_only("name", "secret")
        name = key.text("name")
        if not name or ":" in name or name in names:
            raise key.refusal("name", "it has to be there, once, and without a colon")
        names.add(name)
        try:
            secret = b64decode(key.text("secret"), validate=True)
        except (NotBase64, ValueError) as error:
            raise key.refusal("secret", "it is not base64") from error
        if len(secret) not in _SIZES[kind]:
            sizes = " or ".join(map(str, _SIZES[kind]))
            raise key.refusal("secret", f"it has {len(secret)} bytes, not {sizes}")
        providers.append(_MAKERS[kind](name, secret))
    return providers


def _kms(settings: Section) -> Provider:
    settings.require_only("apiVersion", "name", "endpoint", "timeout", "cachesize")
    if settings.get("apiVersion") != "v2":
        raise settings.refusal("apiVersion", "it has to be v2; v1 is not supported")
    name, endpoint = settings.text("name"), settings.text("endpoint")
    if not name or ":" in name:
        raise settings.refusal("name", "it has to be there, without a colon")
    if not endpoint.startswith("unix://"):
        raise settings.refusal("endpoint", "it has to be a socket, as unix:///PATH")
    timeout = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)", settings.text("timeout", "3s"))
    seconds = 0.0 if timeout is None else float(timeout[1]) * _UNITS[timeout[2]]
    if seconds <= 0:
        raise settings.refusal("timeout", "it has to be a time such as 3s")
    prefix = MARK + b"kms:v2:" + name.encode() + b":"
    return KmsProvider(name, KmsPlugin(name, endpoint, seconds), prefix)


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
