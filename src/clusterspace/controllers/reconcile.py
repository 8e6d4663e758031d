"""What a controller is made of: a Reconciler, the Watches that wake it, Requests and Results."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from clusterspace.client.requests import key_of
from clusterspace.controllers.background import Tasks
from clusterspace.controllers.informers import Handler, Update
from clusterspace.errors import Terminal
from clusterspace.kube.objects import Object, metadata_of

__all__ = [
    "Done",
    "Reconcile",
    "Reconciler",
    "Request",
    "RequeueAfter",
    "Result",
    "Terminal",
    "Watch",
    "itself",
    "more_than_status_changed",
    "nothing",
    "request_for",
]


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """The object to reconcile. What happened to it is not part of it: only what is now counts."""

    name: str
    namespace: str = ""
    cluster: str = ""

    @property
    def key(self) -> str:
        """The key of the object in its cache."""
        return key_of(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.cluster}:{self.key}" if self.cluster else self.key


def request_for(key: str, *, cluster: str = "") -> Request:
    """Return the request for the object with this key."""
    namespace, _, name = key.rpartition("/")
    return Request(name, namespace, cluster)


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Look again after this time, even if nothing changes."""

    seconds: float


Result: TypeAlias = Done | RequeueAfter

Reconcile: TypeAlias = Callable[[Request], Awaitable[Result]]
"""Returns Done or RequeueAfter, or raises.

`Terminal` means that trying again cannot help before something changes: it is logged and counted.
Everything else is tried again, later and later.
"""


class Source(Protocol):
    """Something that changes and says so: an Informer, or a set of them."""

    def add_handler(self, handler: Handler) -> None:
        """Call a handler for every change from now on, and for what is known already as added."""
        ...

    async def wait_synced(self) -> None:
        """Wait until the first list is in the cache."""
        ...


def itself(update: Update) -> Iterable[Request]:
    """Map a change to the object that changed."""
    return (request_for(update.key),)


def nothing(_: Update) -> Iterable[Request]:
    """Map a change to no object: its source is read, and has to be synced for that."""
    return ()


def more_than_status_changed(update: Update) -> bool:
    """Whether an object came or went, or more than its status and its versions changed."""
    before, after = update.decode_before(), update.decode_after()
    return before is None or after is None or _but_status(before) != _but_status(after)


def _but_status(kube_object: Object) -> Any:
    metadata = metadata_of(kube_object)
    marks = ("labels", "annotations", "finalizers", "deletionTimestamp", "uid")
    return kube_object.get("spec"), [metadata.get(each) for each in marks]


@dataclass(frozen=True, slots=True)
class Watch:
    """Something that wakes a reconciler, and the objects it is woken for."""

    source: Source
    to: Callable[[Update], Iterable[Request]] = itself
    """Maps a change to the objects that it concerns; it must not wait."""
    when: Callable[[Update], bool] | None = None
    """Changes for which this is false are not mapped at all."""
    settle_seconds: float = 0
    """How long to wait for more: a burst of changes becomes one attempt."""


class Reconciler(ABC):
    """One controller: what wakes it, and what it does for one object.

        class Copies(Reconciler):
            name = "copies"
            workers = 2

            def __init__(self, hub: Client, caches: HubCaches) -> None:
                self._hub = hub
                self._maps = caches.informer(CONFIG_MAPS)
                self._secrets = caches.informer(SECRETS)

            def watches(self) -> Iterable[Watch]:
                yield Watch(self._maps)
                yield Watch(self._secrets, to=owner)

            async def reconcile(self, request: Request) -> Result: ...

    A process may be killed between any two writes, and leads no longer when its lease is lost.
    So whatever an attempt leaves half done, the next attempt, of this process or another, must
    find in the API and finish. What an instance remembers may save work, never be needed for it.
    """

    name: ClassVar[str]
    """In logs and metrics; no two controllers of a process share one."""
    workers: int = 4
    """How many objects are reconciled at once; one object is never reconciled twice at once."""
    longest_retry_seconds: float = 300.0
    """The longest time between two attempts for an object that keeps failing."""
    at_start: tuple[Request, ...] = ()
    """Reconciled once all sources have synced, whether anything changed or not."""

    @abstractmethod
    def watches(self) -> Iterable[Watch]:
        """Return the watches that wake it. Attempts begin when the sources of all have synced."""
        ...

    @abstractmethod
    async def reconcile(self, request: Request) -> Result:
        """Bring one object to where it should be."""
        ...

    def tasks(self) -> Tasks:
        """Return the tasks that have to run beside its attempts, by their names in logs."""
        return {}
