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
from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

import msgspec
import yaml

from clusterspace.apis import migrations, policies
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import CannotMigrate
from clusterspace.fleet.migration.ownership import OwnerKind, owner_of
from clusterspace.fleet.migration.plan_reading import PlanReader
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
    items: tuple[PlanItem, ...] = ()
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
    def taken(self) -> tuple[PlanItem, ...]:
        """What is to be taken, in order."""
        return tuple(each for each in self.spec.items if each.take)

    @property
    def digest(self) -> str:
        """What is the same for two plans exactly when they say the same."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


def new_plan(name: str, spec: PlanSpec) -> MigrationPlan:
    """Return a plan of this version, with the checksums of its items."""
    items = tuple(msgspec.structs.replace(each, checksum=checksum_of(each)) for each in spec.items)
    return MigrationPlan(
        api_version=migrations.API_VERSION,
        kind=migrations.PLAN,
        metadata=PlanMetadata(name=name),
        spec=msgspec.structs.replace(spec, items=items),
    )


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


def write_plan(plan: MigrationPlan) -> str:
    """Return the text of the file."""
    head = msgspec.structs.replace(plan, spec=msgspec.structs.replace(plan.spec, items=()))
    parts = [msgspec.yaml.encode(head).decode()]
    # A YAML writer makes a tree of all it writes: a part of the items at a time keeps that small.
    # They come last in the file, in the spec, and a list in a map needs no more room than its key.
    for at in range(0, len(plan.spec.items), _WRITTEN_AT_ONCE):
        part = plan.spec.items[at : at + _WRITTEN_AT_ONCE]
        parts += [] if at else ["  items:\n"]
        parts += [f"  {line}" for line in msgspec.yaml.encode(part).decode().splitlines(True)]
    return "".join(parts)


def read_plan(text: bytes, where: str) -> MigrationPlan:
    """Read a plan; CannotMigrate names the place of what cannot be."""
    if len(text) > MOST_BYTES:
        raise CannotMigrate(f"{where} is larger than any plan: {len(text)} bytes")
    problems: list[str] = []

    def entry_of(item: Any, index: int) -> PlanItem | None:
        try:
            return msgspec.convert(item, PlanItem)
        except msgspec.ValidationError as error:
            # Of a plan that is of another version all entries may look wrong: that is said first.
            what, _, place = str(error).partition(" - at ")
            problems.append(f"spec.items[{index}]{place.strip('`').removeprefix('$')}: {what}")
            return None

    try:
        document: Any = PlanReader(text, entry_of).read()
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
        plan = msgspec.convert(document, MigrationPlan)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        named = place.strip("`").removeprefix("$").removeprefix(".") or "the file"
        raise CannotMigrate(f"{where}: {named}: {what}") from error
    _refuse_nonsense(plan, where)
    return plan


def _refuse_nonsense(plan: MigrationPlan, where: str) -> None:
    """Raise for what can be read and cannot be: names twice, an order that is none."""
    for problem in dns1123_label_problems(plan.name):
        raise CannotMigrate(f"{where}: metadata.name {plan.name!r}: {problem}")
    seen: dict[tuple[str, str, str, str], int] = {}
    rank = 0
    for index, item in enumerate(plan.spec.items):
        place = f"{where}: spec.items[{index}]"
        for field in ("api_version", "kind", "resource", "name", "uid", "resource_version"):
            if not getattr(item, field):
                raise CannotMigrate(f"{place}.{_CAMEL.get(field, field)} is empty")
        kind = item.group_version_kind
        key = (kind.group, kind.kind, item.namespace, item.name)
        if key in seen:
            raise CannotMigrate(f"{place}: {item.title} is in spec.items[{seen[key]}] already")
        seen[key] = index
        if item.rank < rank:
            raise CannotMigrate(
                f"{place}.rank is {item.rank}, after {rank}: what others need comes before them"
            )
        rank = item.rank
        why = objection_to(item)
        if item.take and why:
            raise CannotMigrate(f"{place}: {item.title} has take: true, but {why}")
        if item.checksum and item.checksum != checksum_of(item):
            raise CannotMigrate(
                f"{place}: {item.title} was edited: only `take` and `allow` are for people, the "
                "rest is what hub and member answered; plan again"
            )


_CAMEL: Final = {"api_version": "apiVersion", "resource_version": "resourceVersion"}


def assign_policies(items: Iterable[PlanItem], migration: str) -> tuple[PlanItem, ...]:
    """Return the items with the policies that will carry them, in the order given.

    One policy for each namespace and one for what has none, each by the names of its objects: so it
    means exactly these, and no other policy of the hub means them more precisely.
    """
    counts: dict[str, int] = {}
    assigned: list[PlanItem] = []
    for item in items:
        if item.group_version_kind == NAMESPACE_KIND:
            assigned.append(item)
            continue
        number = counts.get(item.namespace, 0)
        counts[item.namespace] = number + 1
        policy = migrations.policy_name(migration, number // POLICY_SELECTORS)
        assigned.append(msgspec.structs.replace(item, policy=policy))
    return tuple(assigned)


NAMESPACE_KIND: Final = GroupVersionKind("", "v1", "Namespace")
