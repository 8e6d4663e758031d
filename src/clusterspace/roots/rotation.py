"""`certs rotate`: authorities and keys are replaced step by step, while everything runs.

    made       a new one lies beside the old; nobody reads it
    trusted    both count; servers publish both, and everybody has time to hear of it
    signing    the new one signs; certificates are issued anew as they are needed
    (dropped)  what the old one signed counts no longer

Each step replaces one file that counts, whole or not at all, and servers that run follow their
files. A note beside them says which is the old one and which the new; what has been done is read
from the files themselves. So a kill at any point leaves a step done or not done, everybody working
with what there is, and the next run goes on from there.
"""

import asyncio
import secrets
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import jwt
import msgspec
from cryptography.hazmat.primitives.serialization import Encoding

from clusterspace.aio.clocks import Clock, SystemClock
from clusterspace.apiserver.identity.authority import (
    Authority,
    KeyPair,
    key_id_of,
    read_bundle,
    signer_of,
)
from clusterspace.apiserver.identity.credentials_in_use import NAME, NAMESPACE
from clusterspace.apiserver.identity.following import secret_text
from clusterspace.apiserver.identity.service_account_tokens import SigningKey, VerifyingKey
from clusterspace.apiserver.identity.service_accounts import TYPE
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ListOptions
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import ClusterspaceError, MalformedTimestamp
from clusterspace.kube.objects import name_of, namespace_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import parse_time
from clusterspace.roots.clients import open_client
from clusterspace.roots.installation import Installation, write_private

OVERLAP_SECONDS: Final = 120.0
"""Our own parts have heard of a new authority after ten seconds, agents after a minute."""

UNUSED_SECONDS: Final = 24 * 3600.0
TAKE_OVER_SECONDS: Final = 60.0
"""A server looks at its files every second: one that has not taken them over by now is down."""

_LOOK_SECONDS: Final = 0.5
_NOTED_SECONDS: Final = 5.0
"""Until a use is written down where we read it: servers write every two seconds."""
_SHORT_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 180.0
_IN_USE: Final = ResourcePath(GroupVersionResource("", "v1", "configmaps"), NAMESPACE, NAME)
_SECRETS: Final = ResourcePath(GroupVersionResource("", "v1", "secrets"))

Progress = Callable[[str], None]


class CannotRotate(ClusterspaceError):
    """A step that was not taken, and what to do about it."""


class Stage(Enum):
    """How far the replacement of one authority or key is."""

    IDLE = "nothing is being replaced"
    MADE = "the new one is made"
    TRUSTED = "both are trusted, the old one signs"
    SIGNING = "both are trusted, the new one signs"


class Note(msgspec.Struct, frozen=True):
    """What is being replaced by what, and since when."""

    old: str
    new: str
    trusted: float = 0.0
    signing: float = 0.0


class Roll(Protocol):
    """One authority or key that is being replaced."""

    what: str
    installation: Installation

    @property
    def note_file(self) -> Path:
        """Where the note is."""
        ...

    def stage(self) -> Stage:
        """Return how far it is, as the files say."""
        ...

    def make(self, now: float) -> None:
        """Make the new one and the note."""
        ...

    def trust(self) -> None:
        """Have both count."""
        ...

    def sign(self) -> None:
        """Have the new one sign."""
        ...

    def drop(self) -> None:
        """Have the old one count no longer, and forget the note."""
        ...


def read_note(roll: Roll) -> Note | None:
    """Return the note; None when nothing is being replaced."""
    try:
        return msgspec.json.decode(roll.note_file.read_bytes(), type=Note)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        why = f"{roll.note_file} cannot be read: {error}"
        raise CannotRotate(f"{why}. Remove it to begin anew; both keys stay trusted") from error


def write_note(roll: Roll, note: Note) -> None:
    """Write the note down."""
    write_private(roll.note_file, msgspec.json.encode(note))


class AuthorityRoll:
    """A certificate authority that another one replaces: ca.crt, ca.key."""

    def __init__(self, installation: Installation, server: str) -> None:
        self.installation = installation
        self.what = f"the authority of the {server}"
        self._pki = installation.pki

    @property
    def note_file(self) -> Path:
        """Where the note is."""
        return self._pki / "ca-rotation.json"

    def stage(self) -> Stage:
        """Return how far it is."""
        note, authorities = read_note(self), self.installation.load_authorities()
        if note is None:
            return Stage.IDLE
        if note.new not in authorities.key_ids:
            return Stage.MADE
        return Stage.SIGNING if authorities.signing.key_id == note.new else Stage.TRUSTED

    def make(self, now: float) -> None:
        """Make the new authority; the note comes last, so that what it names is there."""
        made = Authority.create(f"clusterspace-{secrets.token_hex(4)}", now)
        write_private(self._pki / "ca-next.key", made.pair.key)
        write_private(self._pki / "ca-next.crt", made.pair.certificate)
        old = self.installation.load_authorities().signing.key_id
        write_note(self, Note(old, made.key_id))

    def trust(self) -> None:
        """Add it to the trusted ones, with the word of the old one for who trusts that alone."""
        authorities, cross = self.installation.load_authorities(), self._pki / "ca-cross.crt"
        pair = KeyPair(
            (self._pki / "ca-next.crt").read_bytes(), (self._pki / "ca-next.key").read_bytes()
        )
        chain = authorities.signing.vouch_for(Authority.load(pair))
        if chain:
            # Behind the one that is there: a server that is started now still shows that.
            write_private(cross, authorities.chain + chain)
        elif cross.exists():
            write_private(cross, authorities.chain)
        bundle = authorities.bundle + pair.certificate
        write_private(self.installation.authority_file, bundle, mode=0o644)

    def sign(self) -> None:
        """Put the new key in the place of the old one."""
        # A kill behind this line leaves the new key in two files, of which one counts.
        write_private(self._pki / "ca.key", (self._pki / "ca-next.key").read_bytes())
        (self._pki / "ca-next.key").unlink()

    def drop(self) -> None:
        """Take the old authority out of the trusted ones; others that an operator added stay."""
        note = read_note(self)
        if note is not None:
            trusted = read_bundle(self.installation.authority_file.read_bytes())
            kept = [each for each in trusted if key_id_of(each) != note.old]
            bundle = b"".join(each.public_bytes(Encoding.PEM) for each in kept)
            write_private(self.installation.authority_file, bundle, mode=0o644)
        (self._pki / "ca-next.crt").unlink(missing_ok=True)
        self.note_file.unlink(missing_ok=True)


class TokenKeyRoll:
    """A key behind ServiceAccount tokens that another one replaces: sa.key, sa.pub."""

    what = "the key of ServiceAccount tokens"

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self._pki = installation.pki

    @property
    def note_file(self) -> Path:
        """Where the note is."""
        return self._pki / "sa-rotation.json"

    def stage(self) -> Stage:
        """Return how far it is."""
        note, keys = read_note(self), self.installation.token_keys()
        if note is None:
            return Stage.IDLE
        if note.new not in keys.by_id:
            return Stage.MADE
        return Stage.SIGNING if keys.signing.key_id == note.new else Stage.TRUSTED

    def make(self, now: float) -> None:
        """Make the new key, then the note."""
        made = SigningKey.create()
        write_private(self._pki / "sa-next.key", made.pem)
        write_note(self, Note(self.installation.token_keys().signing.key_id, made.key_id))

    def trust(self) -> None:
        """Have both keys verify; the old one's public half is needed once it signs no longer."""
        made = SigningKey.load((self._pki / "sa-next.key").read_bytes())
        self._write_public((*self.installation.token_keys().by_id.values(), made))

    def sign(self) -> None:
        """Put the new key in the place of the old one."""
        write_private(self._pki / "sa.key", (self._pki / "sa-next.key").read_bytes())
        (self._pki / "sa-next.key").unlink()

    def drop(self) -> None:
        """Take the old key out of those that verify."""
        note = read_note(self)
        if note is not None:
            keys = self.installation.token_keys().by_id.values()
            self._write_public([each for each in keys if each.key_id != note.old])
        self.note_file.unlink(missing_ok=True)

    def _write_public(self, keys: Sequence[VerifyingKey]) -> None:
        pem = b"".join(each.public_pem for each in keys)
        write_private(self._pki / "sa.pub", pem, mode=0o644)


# -- what there is to replace ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Site:
    """What is rotated together: a hub and a fleet API server, or one of them."""

    hub: Installation | None
    fleet: Installation | None
    replicas: tuple[Installation, ...] = ()
    """Further hubs and fleet API servers of `up --ha`, to whom what is replaced is carried."""

    @classmethod
    def find(cls, directory: Path) -> "Site":
        """Return what is in a data directory: of `up`, of a hub, or of a fleet API server."""
        hub, fleet = Installation(directory / "hub"), Installation(directory / "fleet")
        if hub.authority_file.exists():
            others = (
                Installation(each)
                for server in ("hub", "fleet")
                for each in sorted(directory.glob(f"{server}-[0-9]"))
            )
            # Where the objects are in a file again, there is one of each, whatever is left behind.
            is_alone = hub.store_file.exists()
            replicas = tuple(
                each for each in others if each.authority_file.exists() and not is_alone
            )
            return cls(hub, fleet if fleet.authority_file.exists() else None, replicas)
        own = Installation(directory)
        if not own.authority_file.exists():
            raise CannotRotate(f"{directory} is no data directory of a hub, or of `up`: --data-dir")
        is_fleet = any((each.pki / "client-ca.crt").exists() for each in own.servers())
        return cls(None, own) if is_fleet else cls(own, None)

    def replicas_of(self, first: Installation | None) -> tuple[Installation, ...]:
        """Return all servers that share the authority of one, beginning with that one."""
        if first is None:
            return ()
        prefix = f"{first.directory.name}-"
        own = (each for each in self.replicas if each.directory.name.startswith(prefix))
        return tuple(server for each in (first, *own) for server in each.servers())

    def rolls(self) -> tuple[Roll, ...]:
        """Return everything there is to replace."""
        rolls: list[Roll] = []
        if self.hub is not None:
            rolls += [AuthorityRoll(self.hub, "hub"), TokenKeyRoll(self.hub)]
        if self.fleet is not None:
            rolls.append(AuthorityRoll(self.fleet, "fleet API server"))
        return tuple(rolls)


def plan(directory: Path) -> list[tuple[str, Stage]]:
    """Return what there is to replace and how far each is; nothing is changed."""
    return [(each.what, each.stage()) for each in Site.find(directory).rolls()]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long each step waits for others."""

    overlap_seconds: float = OVERLAP_SECONDS
    unused_seconds: float = UNUSED_SECONDS
    """What the old one signed must not have been used for so long."""
    is_forced: bool = False
    """Whether the old one is dropped whoever uses it."""


@dataclass(frozen=True, slots=True)
class LastUse:
    """Who used what an old authority or key signed, and when last."""

    what: str
    user: str
    at: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether all of it is done; if not, who used what the old ones signed, as far as is known."""

    is_done: bool
    users: tuple[LastUse, ...] = ()


async def rotate(
    directory: Path, pace: Pace, progress: Progress, clock: Clock | None = None
) -> Outcome:
    """Replace every authority and key, or go on where an earlier run ended."""
    clock = clock or SystemClock()
    site = Site.find(directory)
    rolls = site.rolls()
    if all(each.stage() in (Stage.IDLE, Stage.MADE) for each in rolls):
        for roll in rolls:
            if roll.stage() is Stage.IDLE:
                roll.make(clock.now())
                progress(f"made: {roll.what} has a successor")
    under_way = [each for each in rolls if each.stage() is not Stage.IDLE]
    for roll in under_way:
        if roll.stage() is Stage.MADE:
            roll.trust()
            progress(f"trusted: {roll.what}, old and new")
    for roll in under_way:
        await _wait_published(site, roll, clock)
    await _wait_overlap(under_way, pace, progress, clock)
    for roll in under_way:
        if roll.stage() is Stage.TRUSTED:
            roll.sign()
            progress(f"signing: {roll.what}, the new one")
        note = read_note(roll)
        if note is not None and not note.signing:
            write_note(roll, msgspec.structs.replace(note, signing=clock.now()))
    for roll in under_way:
        await _wait_presented(site, roll, clock)
    outcome = Outcome(is_done=True)
    if not pace.is_forced:
        outcome = await _wait_unused(site, under_way, pace, progress, clock)
    if outcome.is_done:
        for roll in under_way:
            roll.drop()
            progress(f"dropped: {roll.what}, the old one")
    return outcome


async def _wait_published(site: Site, roll: Roll, clock: Clock) -> None:
    """Wait until servers have taken over that both count, as far as their files are here.

    The hub says so in its kubeconfig, and the gateway beside it writes down whose client
    certificates count there. Those of elsewhere have the overlap.
    """
    note = read_note(roll)
    if note is None or not isinstance(roll, AuthorityRoll):
        return
    places: list[tuple[Path, Callable[[], bytes]]] = [
        (each.kubeconfig, lambda each=each: _address(each)[1])
        for each in site.replicas_of(roll.installation)
    ]
    if roll.installation is site.hub:
        for gateway in site.replicas_of(site.fleet):
            clients = gateway.pki / "client-ca.crt"
            places.append((clients, clients.read_bytes))
    deadline = clock.monotonic() + TAKE_OVER_SECONDS
    for place, read in places:
        while note.new not in _key_ids(read):
            if clock.monotonic() >= deadline:
                why = f"{place} does not have the new authority"
                raise CannotRotate(f"{why}: is the server running? Start it, and run this again")
            await clock.sleep(_LOOK_SECONDS)


def _key_ids(read: Callable[[], bytes]) -> frozenset[str]:
    # Files of servers are there once those have been ready, and are replaced whole.
    with suppress(ClusterspaceError, OSError):
        return frozenset(map(key_id_of, read_bundle(read())))
    return frozenset()


def _address(installation: Installation) -> tuple[str, bytes]:
    """Return where a server is reached and whom to trust there; who asks may be in other files."""
    (cluster,) = read_kubeconfig([installation.kubeconfig]).clusters.values()
    return str(cluster.fields.get("server")), cluster.pem("certificate-authority").data


async def _wait_overlap(
    rolls: Sequence[Roll], pace: Pace, progress: Progress, clock: Clock
) -> None:
    """Give everybody time to hear of the new ones, from the moment they were published."""
    until = 0.0
    for roll in rolls:
        note = read_note(roll)
        if note is None or roll.stage() is not Stage.TRUSTED:
            continue
        if not note.trusted:
            note = msgspec.structs.replace(note, trusted=clock.now())
            write_note(roll, note)
        until = max(until, note.trusted + pace.overlap_seconds)
    left = until - clock.now()
    if left > 0:
        progress(f"waiting {left:.0f} s for everybody to trust the new ones")
        await clock.sleep(left)


async def _wait_presented(site: Site, roll: Roll, clock: Clock) -> None:
    """Wait until the servers show certificates that the new authority alone vouches for."""
    if not isinstance(roll, AuthorityRoll):
        return
    authorities = roll.installation.load_authorities()
    deadline = clock.monotonic() + TAKE_OVER_SECONDS
    # Of several behind one address each has made its certificate before it shows it, in one step.
    for replica in site.replicas_of(roll.installation):
        certificate, _ = replica.server_files
        while signer_of(certificate.read_bytes()) != authorities.signing.key_id:
            if clock.monotonic() >= deadline:
                why = f"{certificate} is not of the new authority"
                raise CannotRotate(f"{why}: is the server running? Start it, and run this again")
            await clock.sleep(_LOOK_SECONDS)
    server, _ = _address(roll.installation)
    while not await _shows(server, authorities.signing.pair.certificate):
        if clock.monotonic() >= deadline:
            why = f"{server} shows no certificate of the new authority"
            raise CannotRotate(f"{why}: is the server running? Start it, and run this again")
        await clock.sleep(_LOOK_SECONDS)


async def _shows(server: str, authority: bytes) -> bool:
    context = ssl.create_default_context(cadata=authority.decode())
    place = urlsplit(server)
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(place.hostname, place.port, ssl=context)
    except (OSError, TimeoutError):  # ssl.SSLError is an OSError
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


async def _wait_unused(
    site: Site, rolls: Sequence[Roll], pace: Pace, progress: Progress, clock: Clock
) -> Outcome:
    """Find out whether nobody used what the old ones signed for long enough.

    Waits for that when it is a matter of a minute; a day is for another run.
    """
    notes = {roll.what: note for roll in rolls if (note := read_note(roll)) is not None}
    if site.hub is None or not notes:
        return Outcome(is_done=True)
    is_short = pace.unused_seconds <= _SHORT_SECONDS
    patience = clock.monotonic() + (_PATIENCE_SECONDS if is_short else 0.0)
    progress(f"looking who used what the old ones signed within {pace.unused_seconds:.0f} s")
    while True:
        settings = read_kubeconfig([site.hub.kubeconfig]).settings()
        found = await _last_uses(settings, notes)
        limit = clock.now() - pace.unused_seconds - _NOTED_SECONDS
        # From the moment the new ones signed: before it everybody used the old ones.
        signing = max(each.signing for each in notes.values())
        since = max(limit, signing)
        recent = tuple(each for each in found if not each.at or _moment(each.at) > since)
        if not recent and signing <= limit:
            return Outcome(is_done=True)
        if clock.monotonic() >= patience:
            return Outcome(is_done=False, users=recent)
        await clock.sleep(_LOOK_SECONDS)


def _moment(text: str) -> float:
    try:
        return parse_time(text)
    except MalformedTimestamp:
        return float("inf")


async def _last_uses(settings: ConnectionSettings, notes: dict[str, Note]) -> list[LastUse]:
    """Return who used what old ones signed, as the servers noted it, and Secrets that hold it."""
    old = {note.old: what for what, note in notes.items()}
    uses: list[LastUse] = []
    async with open_client(settings) as hub:
        written: dict[str, str] = ((await hub.find(_IN_USE)) or {}).get("data") or {}
        for text in written.values():
            noted: dict[str, dict[str, str]] = msgspec.json.decode(text)
            for key_id, users in noted.items():
                if key_id in old:
                    uses += [LastUse(old[key_id], user, at) for user, at in users.items()]
        # A token in a Secret never ends: whoever holds it may not have come by for months.
        selected = ListOptions(field_selector=f"type={TYPE}")
        for secret in await hub.list_objects(_SECRETS, selected):
            header: dict[str, Any] = {}
            with suppress(jwt.PyJWTError):
                header = jwt.get_unverified_header(secret_text(secret, "token"))
            if (key_id := str(header.get("kid"))) in old:
                place = f"the token in Secret {namespace_of(secret)}/{name_of(secret)}"
                uses.append(LastUse(old[key_id], place, ""))
    newest: dict[tuple[str, str], LastUse] = {}
    for each in sorted(uses, key=lambda use: use.at):
        newest[each.what, each.user] = each
    return sorted(newest.values(), key=lambda use: (use.what, use.user))
