"""The plan: a file that people review, edit and keep in Git, and that says all `apply` will do.

    metadata.name          of the migration, and of everything that the hub keeps for it
    spec.hubUID, cluster   for which hub and which cluster it was made, by UID: for no others
    spec.items             each object: whose it is, what taking it over changes, what it needs
      take, allow          what people edit: leave an object out, or allow what is not done unasked
      checksum             of all the rest of an entry: what the member answered is nobody's to edit
    spec.left, unread      what was left out, counted by its reason; what could not be read

A file that cannot be read as a whole is refused as a whole, with the place: half a plan is none.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Any, BinaryIO, Final

import msgspec
import yaml

from clusterspace.apis import migrations, policies
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import CannotMigrate
from clusterspace.fleet.migration.ownership import OwnerKind, owner_of
from clusterspace.fleet.migration.plan_reading import PlanReader
from clusterspace.fleet.migration.spool import Spool
from clusterspace.kube.names import dns1123_label_problems
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionKind, GroupVersionResource

MOST_BYTES: Final = 256 * 1024 * 1024
"""Of a file; a hundred thousand objects take less."""

_WRITTEN_AT_ONCE: Final = 100

POLICY_SELECTORS: Final = 500
"""Objects one policy names. A thousand times as many would not fit into a request."""


class Verdict(Enum):
    """What taking an object over does to it, as the member itself answered; worst last."""

    SAME = "Same"
    CHANGES = "Changes"
    WOULD_RESTART = "WouldRestart"
    REFUSED = "Refused"


class Allow(Enum):
    """What is not done to an object unless its entry in the plan says so."""

    CHANGES = "Changes"
    RESTART = "Restart"
    OWNER = "Owner"
    """Take what somebody else looks after and would change back."""
    HUB_EFFECT = "HubEffect"
    """Put on the hub what has an effect there, too: rights, webhooks, quotas."""


class _Strict(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename="camel",
):
    """A part of the file. A word that is misspelt is an error, never a default."""


class PlannedOwner(_Strict, frozen=True, kw_only=True):
    """Who looked after an object when the plan was made, and what shows it."""

    kind: str
    name: str = ""
    is_reconciling: bool = False
    """Whether it would change back what others change."""
    evidence: str = ""


class PlanItem(_Strict, frozen=True, kw_only=True):
    """One object of the member, and what is to be done about it."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str
    take: bool
    allow: tuple[Allow, ...] = ()
    verdict: Verdict
    reason: str = ""
    """Why it is refused, or left unless allowed."""
    changes: tuple[str, ...] = ()
    """Fields of it that would change, without their values."""
    owner: PlannedOwner | None = None
    hub_effect: str = ""
    """What the template would do on the hub itself; empty for most kinds."""
    needs: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    """Where another hub has it, when it comes from one; empty for what members never see."""
    policy: str = ""
    """Name of the policy that carries it; empty for namespaces, which go to every cluster."""
    retains_replicas: bool = False
    """Whether an autoscaler of the member goes on deciding its replicas."""
    rank: int
    """Its place in the order: nothing is taken before what it needs."""
    resource: str
    uid: str
    resource_version: str
    checksum: str = ""
    """Of all but what people edit. Without one, nothing that is said here counts as answered."""

    @property
    def group_version_kind(self) -> GroupVersionKind:
        """The kind, with its version."""
        return GroupVersionKind.of(self.api_version, self.kind)

    @property
    def path(self) -> ResourcePath:
        """Where it is, on the member and on the hub."""
        kind = self.group_version_kind
        resource = GroupVersionResource(kind.group, kind.version, self.resource)
        return ResourcePath(resource, self.namespace, self.name)

    @property
    def policy_path(self) -> ResourcePath | None:
        """Where the policy is that carries it; None for what needs none."""
        if not self.policy:
            return None
        if self.namespace:
            return ResourcePath(policies.PROPAGATION_POLICIES, self.namespace, self.policy)
        return ResourcePath(policies.CLUSTER_PROPAGATION_POLICIES, name=self.policy)

    @property
    def title(self) -> str:
        """What people call it: `Deployment shop/web`."""
        return f"{self.kind} {self.path.key}"


class LeftOut(_Strict, frozen=True, kw_only=True):
    """Objects of one resource that are no part of the plan, and why."""

    resource: str
    reason: str
    count: int = 0


class PlannedCluster(_Strict, frozen=True, kw_only=True):
    """Which cluster a plan is for; the UID is that of its namespace kube-system."""

    name: str
    uid: str


class PlanSpec(_Strict, frozen=True, kw_only=True):
    """All of a plan but its name."""

    hub_uid: str = msgspec.field(name="hubUID")
    cluster: PlannedCluster
    source: str = ""
    """What kind of hub the objects come from, and `cluster` is; empty for a live cluster."""
    made_at: str
    items: Sequence[PlanItem] = ()
    """Of a plan that was made or read they are in a file, and few at a time in memory."""
    left: tuple[LeftOut, ...] = ()
    unread: tuple[LeftOut, ...] = ()


class PlanMetadata(_Strict, frozen=True, kw_only=True):
    """The name of a plan."""

    name: str


class MigrationPlan(_Strict, frozen=True, kw_only=True):
    """A plan as it is in its file."""

    api_version: str
    kind: str
    metadata: PlanMetadata
    spec: PlanSpec

    @property
    def name(self) -> str:
        """The name of the migration."""
        return self.metadata.name

    @property
    def taken(self) -> Iterator[PlanItem]:
        """What is to be taken, in order."""
        return (each for each in self.spec.items if each.take)

    @property
    def takes(self) -> int:
        """How many are to be taken."""
        return sum(each.take for each in self.spec.items)

    @property
    def head(self) -> "MigrationPlan":
        """The plan without its items."""
        return msgspec.structs.replace(self, spec=msgspec.structs.replace(self.spec, items=()))

    @property
    def digest(self) -> str:
        """What is the same for two plans exactly when they say the same."""
        digest = hashlib.sha256(msgspec.json.encode(self.head))
        for each in self.spec.items:
            digest.update(msgspec.json.encode(each))
        return digest.hexdigest()


def new_plan(name: str, spec: PlanSpec, items: Iterable[PlanItem]) -> MigrationPlan:
    """Return a plan of this version, with the checksums of its items, in the order given."""
    sealed = Spool(PlanItem)
    for each in items:
        sealed.add(msgspec.structs.replace(each, checksum=checksum_of(each)), key_of(each))
    return MigrationPlan(
        api_version=migrations.API_VERSION,
        kind=migrations.PLAN,
        metadata=PlanMetadata(name=name),
        spec=msgspec.structs.replace(spec, items=sealed),
    )


def in_order(items: Iterable[PlanItem]) -> Iterator[PlanItem]:
    """Yield items in the order in which they are taken; what is there twice, once."""
    spool = Spool(PlanItem)
    for each in items:
        keep_in_order(spool, each)
    return spool.ordered()


def keep_in_order(spool: Spool[PlanItem], item: PlanItem) -> None:
    """Add an item to those that will be taken in their order.

    Two groups may serve the same object: the one that was listed first is it.
    """
    order = (f"{item.rank:03d}", item.namespace, item.kind, item.name)
    spool.add(item, item.uid, order=order)


def key_of(item: PlanItem) -> str:
    """Return what no two entries of a plan have in common."""
    kind = item.group_version_kind
    return "/".join((kind.group, kind.kind, item.namespace, item.name))


def checksum_of(item: PlanItem) -> str:
    """Return what changes with every field of an entry but those that people edit."""
    answered = msgspec.structs.replace(item, take=False, allow=(), checksum="")
    return hashlib.sha256(msgspec.json.encode(answered)).hexdigest()[:12]


def planned_owner(live: Object) -> PlannedOwner | None:
    """Return who looks after an object; None when nobody is seen to."""
    owner = owner_of(live)
    if owner.kind is OwnerKind.UNMANAGED:
        return None
    return PlannedOwner(
        kind=owner.kind.value,
        name=owner.name,
        is_reconciling=owner.is_reconciling,
        evidence=owner.evidence,
    )


def objection_to(item: PlanItem, verdict: Verdict | None = None, reason: str = "") -> str:
    """Return why an object is not taken as its entry stands; empty when it may be.

    `verdict` and `reason` are what the member answered now, when it was asked again.
    """
    now = item.verdict if verdict is None else verdict
    if now is Verdict.REFUSED:
        return reason or item.reason or "it is refused"
    owner = item.owner
    if owner is not None and owner.is_reconciling and Allow.OWNER not in item.allow:
        who = f"{owner.kind} {owner.name}".strip()
        return (
            f"{who} looks after it and would change it back: `allow: [Owner]` takes it all the same"
        )
    if item.hub_effect and Allow.HUB_EFFECT not in item.allow:
        return f"on the hub {item.hub_effect}: `allow: [HubEffect]` takes it all the same"
    if now is Verdict.WOULD_RESTART and Allow.RESTART not in item.allow:
        return f"{reason or item.reason}: `allow: [Restart]` takes it all the same"
    if now is Verdict.CHANGES and not {Allow.CHANGES, Allow.RESTART} & set(item.allow):
        return f"{reason or item.reason}: `allow: [Changes]` takes it all the same"
    return ""


def write_plan(plan: MigrationPlan) -> Iterator[str]:
    """Yield the text of the file, piece by piece."""
    yield msgspec.yaml.encode(plan.head).decode()
    # A YAML writer makes a tree of all it writes: a part of the items at a time keeps that small.
    # They come last in the file, in the spec, and a list in a map needs no more room than its key.
    items, title = iter(plan.spec.items), "  items:\n"
    while part := tuple(islice(items, _WRITTEN_AT_ONCE)):
        lines = msgspec.yaml.encode(part).decode().splitlines(True)
        yield title + "".join(f"  {line}" for line in lines)
        title = ""


def read_plan(text: bytes | BinaryIO, where: str) -> MigrationPlan:
    """Read a plan; CannotMigrate names the place of what cannot be."""
    size = len(text) if isinstance(text, bytes) else os.fstat(text.fileno()).st_size
    if size > MOST_BYTES:
        raise CannotMigrate(f"{where} is larger than any plan: {size} bytes")
    items = Spool(PlanItem)
    problems: list[str] = []

    def note_entry(item: Any, index: int) -> None:
        if problems:
            return
        # Of a plan that is of another version all entries may look wrong: that is said first.
        place = f"spec.items[{index}]"
        try:
            entry = msgspec.convert(item, PlanItem)
        except msgspec.ValidationError as error:
            what, _, field = str(error).partition(" - at ")
            problems.append(f"{place}{field.strip('`').removeprefix('$')}: {what}")
            return
        other = items.add(entry, key_of(entry))
        if other is not None:
            problems.append(f"{place}: {entry.title} is in spec.items[{other}] already")

    try:
        document: Any = PlanReader(text, note_entry).read()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or "it cannot be read"
        raise CannotMigrate(f"{where}{place} is not YAML: {what}") from error
    except (RecursionError, ValueError) as error:
        raise CannotMigrate(f"{where} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise CannotMigrate(f"{where} is no plan: make one with `clusterspace migrate plan`")
    kind, version = find_at(document, "kind"), find_at(document, "apiVersion")
    if kind != migrations.PLAN:
        raise CannotMigrate(f"{where}: kind is {kind!r}, and not {migrations.PLAN}")
    if version != migrations.API_VERSION:
        raise CannotMigrate(
            f"{where}: apiVersion is {version!r}, and this clusterspace reads "
            f"{migrations.API_VERSION}: apply it with the version that made it, or plan again"
        )
    if problems:
        raise CannotMigrate(f"{where}: {problems[0]}")
    try:
        head = msgspec.convert(document, MigrationPlan)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        named = place.strip("`").removeprefix("$").removeprefix(".") or "the file"
        raise CannotMigrate(f"{where}: {named}: {what}") from error
    plan = msgspec.structs.replace(head, spec=msgspec.structs.replace(head.spec, items=items))
    _refuse_nonsense(plan, where)
    return plan


def _refuse_nonsense(plan: MigrationPlan, where: str) -> None:
    """Raise for what can be read and cannot be: fields without a value, an order that is none."""
    for problem in dns1123_label_problems(plan.name):
        raise CannotMigrate(f"{where}: metadata.name {plan.name!r}: {problem}")
    rank = 0
    for index, item in enumerate(plan.spec.items):
        place = f"{where}: spec.items[{index}]"
        for field in ("api_version", "kind", "resource", "name", "uid", "resource_version"):
            if not getattr(item, field):
                raise CannotMigrate(f"{place}.{_CAMEL.get(field, field)} is empty")
        if item.rank < rank:
            raise CannotMigrate(
                f"{place}.rank is {item.rank}, after {rank}: what others need comes before them"
            )
        rank = item.rank
        if item.checksum and item.checksum != checksum_of(item):
            raise CannotMigrate(
                f"{place}: {item.title} was edited: only `take` and `allow` are for people, the "
                "rest is what hub and member answered; plan again"
            )
        why = objection_to(item)
        if item.take and why:
            raise CannotMigrate(f"{place}: {item.title} has take: true, but {why}")


_CAMEL: Final = {"api_version": "apiVersion", "resource_version": "resourceVersion"}


def assign_policies(items: Iterable[PlanItem], migration: str) -> Iterator[PlanItem]:
    """Yield the items with the policies that will carry them, in the order given.

    One policy for each namespace and one for what has none, each by the names of its objects: so it
    means exactly these, and no other policy of the hub means them more precisely.
    """
    counts: dict[str, int] = {}
    for item in items:
        if item.group_version_kind == NAMESPACE_KIND:
            yield item
            continue
        number = counts.get(item.namespace, 0)
        counts[item.namespace] = number + 1
        policy = migrations.policy_name(migration, number // POLICY_SELECTORS)
        yield msgspec.structs.replace(item, policy=policy)


NAMESPACE_KIND: Final = GroupVersionKind("", "v1", "Namespace")
