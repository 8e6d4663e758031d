"""What verbs work on: one hub, and one write to it as admission plug-ins see it.

A write meets admission three times, and the plug-ins of each time in the order they are listed:

    defaults ─> mutate ─> the kind prepares ─> admit ─> the kind validates ─> validate ─> store

`mutate` is what Kubernetes calls mutating admission: what it changes is prepared like what the
client sent, so that a new spec counts a generation. `admit` is for the hub's own rules, which see
the object as it will be stored and may complete it. `validate` sees the final object and may only
refuse it. A write that loses a race is made again from what is there then, admission included.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, ClassVar, Final

from clusterspace.aio.clocks import Clock
from clusterspace.aio.lanes import Run, at_once
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.feeds import Feeds
from clusterspace.apiserver.forms import EncodedObjects
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.options import DeleteOptions, WriteOptions
from clusterspace.apiserver.store.interface import Store
from clusterspace.client.webhooks import Webhooks
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.times import format_time


def ignore_warning(text: str) -> None:
    """Drop a warning: the hub writes on its own account, and nobody waits for an answer."""


def ignore_annotation(key: str, value: str) -> None:
    """Drop an annotation: what the hub writes on its own account is not audited."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes, where words for them and for the audit go, where long steps are carried out."""

    user: User
    warn: Callable[[str], None] = ignore_warning
    run: Run = at_once
    annotate: Callable[[str, str], None] = ignore_annotation


class Operation(StrEnum):
    """What a write does, in the words of an AdmissionReview."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


WRITES: Final = frozenset({Operation.CREATE, Operation.UPDATE})
EVERY_OPERATION: Final = frozenset(Operation)


class Reinvocation:
    """Whether mutating plug-ins are asked a second time, and what they remember of the first."""

    __slots__ = ("is_again", "is_wanted", "memory")

    def __init__(self) -> None:
        self.is_wanted = False
        """Set by a plug-in whose object was changed after it had seen it."""
        self.is_again = False
        self.memory: dict[type, Any] = {}


@dataclass(frozen=True, slots=True)
class Admission:
    """One write on its way to the store."""

    served: Served
    user: User
    new: Object
    """What would be stored; for a DELETE what would go; for a CONNECT the options it is made with.
    """
    old: Object | None = None
    """What the write replaces or removes; None for a new object."""
    subresource: str = ""
    warn: Callable[[str], None] = ignore_warning
    """Adds a Warning header to the answer; the same text any number of times adds one."""
    run: Run = at_once
    """Where to carry out a step that takes time by the size of the object."""
    annotate: Callable[[str, str], None] = ignore_annotation
    """Adds an annotation to the line of the request in the audit log."""
    options: WriteOptions | DeleteOptions | None = None
    """What the request asked for beside the object; None when the hub writes for itself."""
    other: Operation | None = None
    """DELETE or CONNECT; whether a write is a CREATE or an UPDATE, `old` shows."""
    place: tuple[str, str] | None = None
    """Namespace and name in the URL, where the object does not say them."""
    reinvocation: Reinvocation = field(default_factory=Reinvocation)

    @property
    def namespace(self) -> str:
        """The namespace of the request; empty at the scope of the cluster."""
        if self.place is not None:
            return self.place[0]
        if self.is_of("", "Namespace"):
            return self.name  # as Kubernetes has it: a Namespace is in itself
        return namespace_of(self.new)

    @property
    def name(self) -> str:
        """The name of the object."""
        return name_of(self.new) if self.place is None else self.place[1]

    @property
    def kind(self) -> GroupVersionKind:
        """The kind of the object that the request is about: of a subresource, that of its own."""
        info = self.served.info
        found = info.find_subresource(self.subresource) if self.subresource else None
        return info.group_version_kind if found is None else found.group_version_kind

    @property
    def operation(self) -> Operation:
        """What the write does."""
        if self.other is not None:
            return self.other
        return Operation.CREATE if self.old is None else Operation.UPDATE

    @property
    def is_create(self) -> bool:
        """Whether the object is new."""
        return self.old is None and self.other is None

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored: whatever else would be done for it is not done."""
        return self.options is not None and self.options.dry_run

    def about(self, new: Object) -> "Admission":
        """Return the same write of another object; `replace` takes three times as long."""
        if new is self.new:
            return self
        return Admission(
            self.served,
            self.user,
            new,
            self.old,
            self.subresource,
            self.warn,
            self.run,
            self.annotate,
            self.options,
            self.other,
            self.place,
            self.reinvocation,
        )

    def is_of(self, group: str, kind: str) -> bool:
        """Whether the object is of this kind."""
        return (self.served.info.group, self.served.info.kind) == (group, kind)


class Plugin:
    """An admission rule: a subclass has those of the three methods that it needs.

    Methods that are not overridden are never called, and none is for other operations than those
    that `handles` has.
    """

    name: ClassVar[str] = ""
    """What kube-apiserver's flags call it; without a name it cannot be disabled."""
    handles: ClassVar[frozenset[Operation]] = WRITES

    async def mutate(self, hub: "HubState", admission: Admission) -> Object:
        """Return the object as it should be, changed or not; raise an ApiError to refuse it.

        The object has its defaults, and lacks what the kind's rules set before it is stored. What
        a mutation of a DELETE or a CONNECT returns counts for nothing.
        """
        return admission.new

    async def admit(self, hub: "HubState", admission: Admission) -> Object:
        """Return the object to store, changed or not; raise an ApiError to refuse it."""
        return admission.new

    async def validate(self, hub: "HubState", admission: Admission) -> None:
        """Raise an ApiError to refuse the object, which its kind has found valid; or warn."""


class _Chains:
    """Which plug-ins are asked, by method and operation; worked out once."""

    __slots__ = ("admitting", "mutating", "validating")

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        listed = tuple(plugins)

        def of(method: str) -> Mapping[Operation, tuple[Plugin, ...]]:
            default = getattr(Plugin, method)
            having = [each for each in listed if getattr(type(each), method) is not default]
            return {
                operation: tuple(each for each in having if operation in each.handles)
                for operation in Operation
            }

        self.mutating, self.admitting, self.validating = of("mutate"), of("admit"), of("validate")


@dataclass(frozen=True, slots=True)
class HubState:
    """One hub. Verbs take it as their first argument and hold nothing themselves."""

    store: Store
    catalog: Catalog
    feeds: Feeds
    clock: Clock
    random: Random
    new_uid: Callable[[], str]
    plugins: tuple[Plugin, ...] = ()
    """Admission, in the order in which it is asked."""
    _chains: _Chains = field(init=False)
    webhooks: Webhooks = field(default_factory=Webhooks)
    encoded: EncodedObjects = field(default_factory=EncodedObjects)
    """What has been answered in protobuf lately."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_chains", _Chains(self.plugins))

    async def mutate(self, admission: Admission) -> Object:
        """Return the object as mutating plug-ins want it; each sees what the one before returned.

        When one of them changed what an earlier one had seen and wants to see again, all are asked
        once more, and never a third time.
        """
        new, again = await self._mutated(admission), admission.reinvocation
        if again.is_wanted:
            again.is_again = True
            new = await self._mutated(admission.about(new))
        return new

    async def _mutated(self, admission: Admission) -> Object:
        for plugin in self._chains.mutating[admission.operation]:
            admission = admission.about(await plugin.mutate(self, admission))
        return admission.new

    async def admit(self, admission: Admission) -> Object:
        """Return the object to store: every plug-in sees what the one before it returned."""
        for plugin in self._chains.admitting[admission.operation]:
            admission = admission.about(await plugin.admit(self, admission))
        return admission.new

    async def validate(self, admission: Admission) -> None:
        """Have the object refused that is stored next: there is nothing between this and that."""
        for plugin in self._chains.validating[admission.operation]:
            await plugin.validate(self, admission)

    def is_asked_about(self, operation: Operation) -> bool:
        """Whether any plug-in looks at such requests."""
        chains = self._chains
        return any(
            chain[operation] for chain in (chains.mutating, chains.admitting, chains.validating)
        )

    def timestamp(self) -> str:
        """Return the time as objects carry it."""
        return format_time(self.clock.now())
