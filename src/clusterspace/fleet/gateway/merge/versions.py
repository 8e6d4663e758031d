"""Per-cluster resourceVersions in one opaque string, the vector.

    cs1.<base64url>
        8 bytes   digest of everything below and of the full names of the clusters
        then for each cluster, in ascending order of its key:
        5 bytes   key: a hash of the name
        1..n      the version: a number, or the length of a text and the text

The version of a cluster is how far a list or a watch has come in it. On the object of an event it
also says which version the object itself has, if that is another one: `70/12` is an object last
changed at 12, told by a stream that has come to 70. Whoever goes on takes the first, whoever
changes the object the second. `/12` belongs to a state of which only a part has been told: it is
good for a change and nobody can go on from there.

A vector travels in URLs, where 8 KB is a common limit. Names of 48 characters would fill that with
little more than 100 clusters, so a vector has keys instead: 10 bytes for a cluster with a version
of ten digits, which makes 6.7 KB for 500 clusters. Keys mean something only to a reader who knows
the names of the clusters there are, and two names may share one. The digest settles that: the
reader tries the names that fit, and only those the vector was made for give its digest. No other
reading is believed, so a version never reaches a cluster it does not belong to.

Equal vectors are equal strings, in whatever order they were put together. What cannot be read is
Expired, and so is a vector that names a cluster which has left: clients list again. To read such a
string as "from now" would drop every event in between without a word.
"""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from typing import Final

from clusterspace.errors import BadRequest, Expired
from clusterspace.fleet.gateway.routes import in_order, position

MARK: Final = "cs1."
"""What every vector starts with: whose it is, and which edition of the format."""

_FAMILY: Final = "cs"
_OWN: Final = "/"
"""Stands between how far a stream has come and the object's own version; in no version."""
_DIGEST_BYTES: Final = 8
_KEY_BYTES: Final = 5
_MOST_READINGS: Final = 64
"""Two names share a key once in ten million fleets of 500; more than a few such pairs are made."""
_MOST_DIGITS: Final = 39
"""As many as Kubernetes allows a resourceVersion, which is a number of 128 bits at most."""
_MOST_NUMBER_BYTES: Final = 19
"""What a number of 128 bits, and the bit that tells it from a text, takes at seven bits a byte."""


def encode(versions: Mapping[str, str]) -> str:
    """Return the vector of these clusters' versions."""
    keyed = sorted((_key(cluster), cluster) for cluster in versions)
    body = b"".join(key + _pack(versions[cluster]) for key, cluster in keyed)
    return _sealed(_written_names([cluster for _, cluster in keyed]), body)


def decode(version: str, clusters: Collection[str]) -> dict[str, str]:
    """Return how far the client has come in each cluster; one left out joined afterwards.

    `clusters` are all there are, whether or not the caller may reach them. An empty version asks
    no cluster for any, and `0` asks each for whatever it has at hand. What is empty in the answer
    has been sent in part.
    """
    decoded = _decode(version, clusters)
    return {cluster: each.partition(_OWN)[0] for cluster, each in decoded.items()}


def _decode(version: str, clusters: Collection[str]) -> dict[str, str]:
    if not version:
        return {}
    if version == "0":
        return dict.fromkeys(clusters, "0")
    if not version.startswith(MARK):
        raise _expired("it is the version of one cluster, or of another server")
    text = version.removeprefix(MARK)
    try:
        sealed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        digest, body = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:]
        entries = list(_read_entries(body))
    except (ValueError, IndexError) as error:
        raise _expired("it is damaged") from error
    # The only names that have the keys and give the digest.
    named: defaultdict[bytes, list[str]] = defaultdict(list)
    for cluster in clusters:
        named[_key(cluster)].append(cluster)
    readings = product(*(named[key] for key, _ in entries))
    for names in islice(readings, _MOST_READINGS):
        if _digest(_written_names(names), body) == digest:
            return dict(zip(names, (own for _, own in entries), strict=True))
    raise _expired("the clusters it was made for are not those there are now")


def version_in(version: str, cluster: str, clusters: Collection[str]) -> str | None:
    """Return the version one cluster is meant by; None when the vector does not speak of it.

    For the vector of an object it is the object's own. What is no vector is the cluster's own:
    only that cluster can judge it.
    """
    if not is_vector(version):
        return version
    own = _decode(version, clusters).get(cluster)
    return None if own is None else own.rpartition(_OWN)[2]


def placed(position: str, own: str) -> str:
    """Return how far a stream has come in a cluster, on an object with a version of its own.

    >>> placed("70", "70"), placed("70", "12"), placed("", "12")
    ('70', '70/12', '/12')
    """
    return position if position == own else f"{position}{_OWN}{own}"


def is_lower(version: str, other: str) -> bool:
    """Whether one cluster gave this version before the other.

    Those that are no numbers are not compared: only their own server can judge them.

    >>> is_lower("9", "70"), is_lower("70", "70"), is_lower("", "70"), is_lower("9", "a")
    (True, False, False, False)
    """
    return is_number(version) and is_number(other) and int(version) < int(other)


class RunningVector:
    """The vector of a stream: written for each event, of which only one cluster's part is new."""

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self._names: bytes = _written_names(())

    def set(self, cluster: str, version: str) -> None:
        """Note how far the stream has come in a cluster."""
        is_new = cluster not in self._packed
        self._packed[cluster] = _key(cluster) + _pack(version)
        if is_new:
            # A cluster joins once in a long while: every event finds them in their order.
            names = sorted(self._packed, key=lambda name: (_key(name), name))
            self._packed = {name: self._packed[name] for name in names}
            self._names = _written_names(names)

    def remove(self, cluster: str) -> None:
        """Speak of a cluster no more."""
        if self._packed.pop(cluster, None) is not None:
            self._names = _written_names(tuple(self._packed))

    def encode(self) -> str:
        """Return the vector as it is now."""
        return _sealed(self._names, b"".join(self._packed.values()))


def is_vector(version: str) -> bool:
    """Whether this is a vector, or was one before it broke; native versions are numbers."""
    family, dot, _ = version.partition(".")
    return bool(dot) and family.startswith(_FAMILY) and family[len(_FAMILY) :].isdigit()


@lru_cache(maxsize=4096)
def _key(cluster: str) -> bytes:
    return hashlib.blake2b(cluster.encode(), digest_size=_KEY_BYTES).digest()


def _read_entries(body: bytes) -> Iterator[tuple[bytes, str]]:
    """Yield key and version; what is cut off raises IndexError here, or fails the digest later."""
    at = 0
    while at < len(body):
        key = body[at : at + _KEY_BYTES]
        at += _KEY_BYTES
        number = 0
        for index in range(_MOST_NUMBER_BYTES):
            byte = body[at + index]
            number |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                break
        else:
            raise ValueError("a number of more bits than any version has")
        at += index + 1
        if number & 1:
            end = at + (number >> 1)
            yield key, body[at:end].decode()
            at = end
        else:
            yield key, str(number >> 1)


# Many clients of one fleet are at the same place, one after the other.
@lru_cache(maxsize=256)
def _sealed(names: bytes, body: bytes) -> str:
    sealed = _digest(names, body) + body
    return MARK + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def _digest(names: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(names + body, digest_size=_DIGEST_BYTES).digest()


def _written_names(clusters: Sequence[str]) -> bytes:
    # Names have no line breaks, so no two lists of names look alike.
    return "\n".join(clusters).encode() + b"\n\n"


def is_number(version: str) -> bool:
    """Whether this is a version as Kubernetes gives them, which can be compared."""
    return version.isascii() and version.isdigit() and len(version) <= _MOST_DIGITS


# From one event of a watch to the next, the version of one cluster changes and the rest stay.
@lru_cache(maxsize=8192)
def _pack(version: str) -> bytes:
    # Written as numbers are, so that it can be written back.
    if is_number(version) and (version == "0" or version[0] != "0"):
        return _pack_number(int(version) << 1)
    text = version.encode()
    return _pack_number(len(text) << 1 | 1) + text


def _pack_number(number: int) -> bytes:
    """Return a number in bytes of seven bits, the lowest first; the last one is below 128."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def _expired(why: str) -> Expired:
    return Expired(f"the resourceVersion cannot be continued from: {why}; list again")


_CONTINUE_MARK: Final = "cc1"
_BETWEEN: Final = "~"
"""Needs no escaping in a URL, and is in no vector and in no name of a cluster."""
_SHOWN: Final = "_"
"""The same; a number follows."""
_CHECK_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Continue:
    """Where a list goes on."""

    cluster: str
    token: str
    """The cluster's own continue token; empty when nothing of the cluster has been listed yet."""
    versions: str
    """The vector of page one."""
    shown: int = 0
    """How many objects of the cluster were on the pages before: its list has to have an end."""

    def remaining(self, clusters: Iterable[str]) -> list[str]:
        """Return those of the clusters that are still to be listed, this one first."""
        start = position(self.cluster)
        return [each for each in in_order(clusters) if position(each) >= start]


def encode_continue(place: Continue) -> str:
    """Return the token that leads there."""
    cluster = f"{place.cluster}{_SHOWN}{place.shown}" if place.shown else place.cluster
    body = _BETWEEN.join((cluster, place.versions, place.token))
    return _BETWEEN.join((_CONTINUE_MARK, _check(body), body))


def decode_continue(token: str) -> Continue:
    """Unpack a token; one we did not write is refused, never taken for "from the start"."""
    mark, _, rest = token.partition(_BETWEEN)
    check, _, body = rest.partition(_BETWEEN)
    if mark != _CONTINUE_MARK or check != _check(body):
        # The words of a kube-apiserver.
        raise BadRequest(
            "invalid continue token: continue key is not valid: this server did not issue it"
        )
    words, versions, member_token = body.split(_BETWEEN, 2)
    cluster, _, shown = words.partition(_SHOWN)
    is_number = shown.isascii() and shown.isdecimal() and len(shown) < _MOST_DIGITS
    return Continue(cluster, member_token, versions, int(shown) if is_number else 0)


def _check(body: str) -> str:
    return hashlib.blake2b(body.encode(), digest_size=_CHECK_BYTES).hexdigest()
