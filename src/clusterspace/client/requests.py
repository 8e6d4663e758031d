"""ApiRequest and Answer: the values handed to a connection and back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import quote, urlencode

from clusterspace.client.answer_memory import Hold
from clusterspace.errors import MalformedObject

Headers: TypeAlias = tuple[tuple[str, str], ...]
Query: TypeAlias = tuple[tuple[str, str], ...]

DEADLINE_SECONDS: Final = 30.0
MOST_BYTES: Final = 256 * 1024 * 1024
"""A list of a hundred thousand large objects fits; an answer without end does not."""

_SAFE: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One HTTP request to a cluster, and how much time and memory its answer may take.

    `path` starts at the cluster's root and is percent-encoded already; a prefix the server's URL
    has comes before it.
    """

    method: str
    path: str
    query: Query = ()
    headers: Headers = ()
    body: bytes | None = field(default=None, repr=False)
    seconds: float = DEADLINE_SECONDS
    """For the whole answer; of a stream, for its head."""
    most_bytes: int = MOST_BYTES
    hold: Hold | None = field(default=None, repr=False, compare=False)
    """What the answer is counted in, when all answers together have a bound."""
    quiet_seconds: float | None = None
    """Of a stream: how long it may say nothing before it counts as broken."""

    @property
    def is_safe(self) -> bool:
        """Whether asking twice is the same as asking once."""
        return self.method in _SAFE

    @property
    def target(self) -> str:
        """The path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, whatever its status; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def retry_after(self) -> float | None:
        """The seconds after which the server asks us to try again, if it does."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() else None


def path_of(*segments: str) -> str:
    """Join segments to a path, each encoded as a whole: a slash in a name stays in the name.

    Dots cannot be encoded away: a server, or a proxy before it, would walk up the path.
    """
    for segment in segments:
        if segment in ("", ".", ".."):
            raise MalformedObject(f"{segment!r} is no part of a path", place="path")
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)
