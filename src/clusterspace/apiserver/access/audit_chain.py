"""Lines of the audit log that show tampering: each has a number and a hash over the one before it.

    "annotations":{…,"audit.clusterspace.io/sequence":"8",
                     "audit.clusterspace.io/previous":"<hash of number 7>",
                     "audit.clusterspace.io/hash":"<SHA-256 of all of this line but the hash>"}}

A changed line no longer has its hash, and with a new hash it is no longer what the next one names;
a line that was taken out, put in or moved breaks the numbers. Beside the log is its head: the last
number and hash, and the oldest line that is kept, so that the ends are guarded too.

What was not written has its place in the chain as well. A full disk loses lines: the next that is
written says how many. A crash leaves a part of a line: the next says how long it is, and hashes it.

Whoever can write the log can write all of it anew, and the head with it: a hash is no key. With a
key (`--audit-log-key-file`) the hashes are HMACs, that of the head too, and lines name which key
they need; whoever has not got it cannot make a line. Lines from before there was a key are bound by
the first that has one. What a key does not show is an older state of all files put back in place:
against that helps a number and hash that was noted elsewhere, so the server's own log names them,
and `verify` takes them.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

PREFIX: Final = "audit.clusterspace.io/"
"""What annotations begin with that only the server itself writes."""
SEQUENCE: Final = f"{PREFIX}sequence"
PREVIOUS: Final = f"{PREFIX}previous"
HASH: Final = f"{PREFIX}hash"
LOST: Final = f"{PREFIX}lost-before"
TORN: Final = f"{PREFIX}torn-before"
KEY: Final = f"{PREFIX}key"

_OWN: Final = frozenset({SEQUENCE, PREVIOUS, HASH, LOST, TORN, KEY})
_HASH_BEGIN: Final = f',"{HASH}":"'.encode()
_HASH_END: Final = re.compile(rb',"%b":"([0-9a-f]{64})"\}\}\n' % re.escape(HASH).encode())
_HASH_BYTES: Final = len(f',"{HASH}":"{"0" * 64}"}}}}\n')
_HEAD_BYTES: Final = 256
"""The head is always this long: it is written over itself, which needs no room on a full disk."""


class Head(msgspec.Struct):
    """Where a log ends, as its head file says, and where it begins."""

    sequence: int = 0
    hash: str = ""
    first: int = 1
    """The number of the oldest line that is kept; those before were turned out."""
    lost: int = 0
    """Lines that found no room since the last one that did."""
    mac: str = ""
    """The HMAC of all of this, where there is a key."""

    def said(self) -> bytes:
        """Return what its HMAC is of."""
        return f"{self.sequence} {self.hash} {self.first} {self.lost}".encode()

    def encoded(self) -> bytes:
        """Return the content of the head file."""
        return msgspec.json.encode(self).ljust(_HEAD_BYTES - 1) + b"\n"


class Key:
    """A key that hashes of lines are made with."""

    def __init__(self, secret: bytes) -> None:
        self.name = hashlib.sha256(b"audit log key" + secret).hexdigest()[:8]
        """What lines call it; it says nothing about the key."""
        self._mac = hmac.new(secret, digestmod="sha256")

    def hash_of(self, content: bytes) -> str:
        """Return the HMAC of some bytes."""
        mac = self._mac.copy()
        mac.update(content)
        return mac.hexdigest()


class _Annotated(msgspec.Struct):
    annotations: dict[str, str]


_encoder: Final = msgspec.json.Encoder()
_annotated: Final = msgspec.json.Decoder(_Annotated)
_heads: Final = msgspec.json.Decoder(Head)


@dataclass(frozen=True, slots=True)
class Link:
    """What a line of the log says of its place."""

    sequence: int
    previous: str
    hash: str
    lost: int = 0
    torn: int = 0
    key: str = ""


def head_path(log: Path) -> Path:
    """Return where the head of a log is."""
    return log.with_name(f"{log.name}.head")


def read_head(log: Path) -> Head | None:
    """Return the head of a log; None when there is none, or it cannot be read."""
    try:
        return _heads.decode(head_path(log).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def chained(
    event: dict[str, Any], head: Head, torn: bytes, key: Key | None = None
) -> tuple[bytes, str]:
    """Return an event as the line that follows `head`, and its hash."""
    notes: Mapping[str, str] = event.get("annotations") or {}
    if notes and (next(reversed(event)) != "annotations" or not _OWN.isdisjoint(notes)):
        notes = {key: value for key, value in notes.items() if key not in _OWN}
        event = {key: value for key, value in event.items() if key != "annotations"}
        event["annotations"] = notes
    place = f'"{SEQUENCE}":"{head.sequence + 1}","{PREVIOUS}":"{head.hash}"'
    if head.lost:
        place += f',"{LOST}":"{head.lost}"'
    if torn:
        place += f',"{TORN}":"{len(torn)}"'
    if key is not None:
        place += f',"{KEY}":"{key.name}"'
    # Put into the bytes: every write waits for this, and copying the event costs as much as that.
    # Its annotations are last in the line, and in them the hash, which can so be taken out again.
    encoded = _encoder.encode(event)
    if notes:
        encoded = b"%b,%b}}" % (encoded[:-2], place.encode())
    elif "annotations" in event:
        encoded = b"%b%b}}" % (encoded[:-2], place.encode())
    else:
        comma = b"," if event else b""
        encoded = b'%b%b"annotations":{%b}}' % (encoded[:-1], comma, place.encode())
    hashed = torn + encoded if torn else encoded
    digest = hashlib.sha256(hashed).hexdigest() if key is None else key.hash_of(hashed)
    return b"%b%b%b" % (encoded[:-2], _HASH_BEGIN, digest.encode()) + b'"}}\n', digest


def read_link(line: bytes) -> Link | None:
    """Return what a line says of its place; None for one that is not of a chain."""
    found = _HASH_END.fullmatch(line[-_HASH_BYTES:])
    if found is None:
        return None
    try:
        said = _annotated.decode(line).annotations
        return Link(
            int(said[SEQUENCE]),
            said[PREVIOUS],
            found[1].decode(),
            int(said.get(LOST, "0")),
            int(said.get(TORN, "0")),
            said.get(KEY, ""),
        )
    except (msgspec.DecodeError, KeyError, ValueError):
        return None


def _hash_of(line: bytes, key: Key | None, torn: bytes = b"") -> str:
    hashed = torn + line[:-_HASH_BYTES] + b"}}"
    return hashlib.sha256(hashed).hexdigest() if key is None else key.hash_of(hashed)


# -- verification ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; line 0 is the file as such."""

    file: Path
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else str(self.file)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is not as it was written, or why that cannot be said."""

    place: Place
    what: str
    """changed, removed, inserted or moved; lost, torn or unchecked are no tampering."""
    message: str

    @property
    def is_tampering(self) -> bool:
        """Whether somebody has had a hand in it, as far as can be seen."""
        return self.what in ("changed", "removed", "inserted", "moved")


@dataclass(slots=True)
class _Gap:
    """Numbers that did not come in their place; they may still come in another."""

    place: Place
    missing: set[int] | range


@dataclass(slots=True)
class Verification:
    """Reads the files of one log, oldest line first, and says what is not as it was written."""

    head: Head | None = None
    noted: Link | None = None
    """A number and hash that were noted elsewhere: the log must have them."""
    keys: Mapping[str, Key] = field(default_factory=dict[str, Key])
    """Keys that lines may have been written with, by their names."""
    lines: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])
    last: Link | None = None
    _gaps: list[_Gap] = field(default_factory=list[_Gap])
    _loose: list[tuple[Place, bytes]] = field(default_factory=list[tuple[Place, bytes]])
    """Lines that are not of the chain, since the last that is."""
    _unknown: set[str] = field(default_factory=set[str])
    _is_replaced: bool = False
    """Whether the hash that the last line states is known not to be the one it had."""
    _has_noted: bool = False

    def read(self, file: Path, lines: Iterable[bytes]) -> None:
        """Read one file, the next younger one."""
        for number, line in enumerate(lines, 1):
            self.lines += 1
            place, link = Place(file, number), read_link(line)
            if link is None:
                self._loose.append((place, line))
            else:
                self._check(place, line, link)

    def _find(self, place: Place, what: str, message: str) -> None:
        self.findings.append(Finding(place, what, message))

    def _check(self, place: Place, line: bytes, link: Link) -> None:
        """Hold one line against its own hash, and against the line before it."""
        torn = b"".join(each for _, each in self._loose)
        key = self.keys.get(link.key)
        is_unknown = bool(link.key) and key is None
        if is_unknown and link.key not in self._unknown:
            self._unknown.add(link.key)
            why = f"from number {link.sequence} on, lines need the key {link.key}: it is not given"
            self._find(place, "changed" if self.keys else "unchecked", why)
        is_explained = is_unknown and link.torn == len(torn)
        is_torn = bool(torn) and (is_explained or link.hash == _hash_of(line, key, torn))
        is_whole = is_torn or is_unknown or link.hash == _hash_of(line, key)
        self._drop_loose(link, is_explained=is_torn)
        if self.last is not None and self.last.key and not link.key:
            why = f"number {link.sequence} was written without the key that those before it have"
            self._find(place, "changed", why)
        if not is_whole:
            self._find(place, "changed", f"number {link.sequence} does not have its hash")
        elif link.lost:
            why = f"{link.lost} lines before number {link.sequence} found no room on the disk"
            self._find(place, "lost", why)
        for known in (self.head, self.noted):
            if known is not None and known.sequence == link.sequence:
                self._has_noted = self._has_noted or known is self.noted
                if known.hash != link.hash:
                    whose = "the head file" if known is self.head else "what was noted"
                    why = f"number {link.sequence} is not the line that {whose} names"
                    self._find(place, "changed", why)

        last = self.last
        expected = 1 if last is None else last.sequence + 1
        if last is None and link.sequence > 1:
            oldest = self.head.first if self.head is not None else 0
            if 0 < oldest < link.sequence:
                self._gaps.append(_Gap(place, range(oldest, link.sequence)))
            elif not oldest:
                why = f"the log begins with number {link.sequence}; older lines are not here"
                self._find(place, "unchecked", why)
        elif link.sequence > expected:
            self._gaps.append(_Gap(place, range(expected, link.sequence)))
        elif link.sequence < expected:
            # It is out of its place: what follows still has to follow the line before it.
            self._place_late(place, link)
            return
        elif last is not None and link.previous != last.hash and not self._is_replaced:
            why = f"number {link.sequence} was written after another line than the one before it"
            self._find(place, "changed", why)
        self._is_replaced = not is_whole
        self.last = link

    def _drop_loose(self, link: Link, *, is_explained: bool) -> None:
        """Say what becomes of lines without a place, now that the line behind them is known."""
        if self._loose and link.sequence == 1 and self.last is None and not is_explained:
            place, count = self._loose[0][0], len(self._loose)
            self._find(place, "unchecked", f"{count} lines are from before the log was chained")
        else:
            for place, each in self._loose:
                if is_explained:
                    why = f"{len(each)} bytes of a line that was not finished, as the next one says"
                    self._find(place, "torn", why)
                else:
                    self._find(place, "inserted", "this line is not of the log")
        self._loose.clear()

    def _place_late(self, place: Place, link: Link) -> None:
        for gap in self._gaps:
            if link.sequence in gap.missing:
                gap.missing = set(gap.missing) - {link.sequence}
                self._find(place, "moved", f"number {link.sequence} is not in its place")
                return
        why = f"number {link.sequence} comes again"
        self._find(place, "inserted", why)

    def finish(self, log: Path) -> None:
        """Say what the end shows: what is missing for good, and whether the last lines are here."""
        for place, each in self._loose:
            if each.endswith(b"\n") and self.last is not None:
                self._find(place, "inserted", "this line is not of the log")
            elif self.last is not None or not each.endswith(b"\n"):
                self._find(place, "torn", f"{len(each)} bytes of a line that was not finished")
        if self._loose and self.last is None:
            why = f"{len(self._loose)} lines are from before the log was chained"
            self._find(self._loose[0][0], "unchecked", why)
        for gap in self._gaps:
            for first, behind in _runs(gap.missing):
                self._find(gap.place, "removed", f"{_numbers(first, behind)} missing before it")
        reached = self.last.sequence if self.last is not None else 0
        if self.keys:
            sealed = self.head if self.head is not None and self._is_sealed(self.head) else None
            # A log that was just given a key is sealed by its head until a line comes.
            is_sealed = sealed is not None and sealed.hash == (self.last.hash if self.last else "")
            if self.last is not None and not self.last.key and not is_sealed:
                why = "it ends with lines that were written without a key"
                self._find(Place(log), "changed", why)
            if self.head is not None and sealed is None:
                why = "the head file was not written with a key that is given"
                self._find(Place(log), "changed", why)
        if self.head is None:
            why = "there is no head file: lines that were removed at the end are not noticed"
            self._find(Place(log), "unchecked", why)
        elif self.head.sequence > reached:
            missing = _numbers(max(reached + 1, self.head.first), self.head.sequence + 1)
            self._find(Place(log), "removed", f"{missing} missing at the end")
        elif self.head.lost:
            why = f"{self.head.lost} lines after number {reached} found no room on the disk"
            self._find(Place(log), "lost", why)
        if self.noted is not None and not self._has_noted:
            why = f"number {self.noted.sequence}, which was noted, is not here"
            self._find(Place(log), "removed", why)

    def _is_sealed(self, head: Head) -> bool:
        macs = (key.hash_of(head.said()) for key in self.keys.values())
        return any(hmac.compare_digest(mac, head.mac) for mac in macs)


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield first and one-behind-last of what follows one another."""
    if isinstance(numbers, range):
        yield numbers.start, numbers.stop
        return
    first = behind = -1
    for number in sorted(numbers):
        if number != behind:
            if behind >= 0:
                yield first, behind
            first = number
        behind = number + 1
    if behind >= 0:
        yield first, behind


def _numbers(first: int, behind: int) -> str:
    return f"number {first} is" if behind - first == 1 else f"numbers {first} to {behind - 1} are"


def verify(
    log: Path, files: Iterable[Path], noted: Link | None = None, keys: Iterable[Key] = ()
) -> Verification:
    """Verify the files of one log, oldest first; `log` is the one that is written to."""
    verification = Verification(read_head(log), noted, {key.name: key for key in keys})
    for file in files:
        with file.open("rb") as lines:
            verification.read(file, lines)
    verification.finish(log)
    return verification


def files_of(log: Path) -> list[Path]:
    """Return the files of a log that are there, oldest first: `audit.log.2`, `.1`, `audit.log`."""
    numbered = re.compile(rf"{re.escape(log.name)}\.(\d+)")
    found = [
        (int(match[1]), each)
        for each in log.parent.iterdir()
        if (match := numbered.fullmatch(each.name))
    ]
    older = [each for _, each in sorted(found, reverse=True)]
    return [*older, log] if log.exists() else older
