"""What taking an object over would do to it: asked of hub and member by dry runs, never guessed.

    live ──template──> hub, dry run ──rendered as a Work has it──> member, dry run ──> verdict

The hub is asked because it may know fewer fields than the member, or add defaults; the manifest is
made by the functions that make Works and puts of them, overrides included. Scripts and webhooks of
the hub that speak for a kind are asked as the controllers ask them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from clusterspace.apis import kinds, stamps, works
from clusterspace.apis.affinities import Traits
from clusterspace.apis.interpreter.templates import Dependency, dependencies_in, replicas_in
from clusterspace.apis.interpreters import RETAIN, REVISE_REPLICA
from clusterspace.apis.kinds import kind_of
from clusterspace.apis.migrations import policy_name
from clusterspace.apis.policies import ResourceSelector
from clusterspace.client.discovery import ServedResources
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, WriteOptions
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    ClusterTimeout,
    Conflict,
    Forbidden,
    InternalError,
    InterpretationFailed,
    Invalid,
    MethodNotAllowed,
    NotFound,
    NotServed,
    OverrideFailed,
    RequestEntityTooLarge,
)
from clusterspace.fleet.execution.promotion import Effect, effect_of, plan_promotion
from clusterspace.fleet.execution.takeover import (
    FIELD_MANAGER,
    OVERWRITE,
    plan_update,
    without_stamps,
)
from clusterspace.fleet.interpretation.interpreter import Interpreter
from clusterspace.fleet.migration.plan import Verdict
from clusterspace.fleet.migration.selection import NAMESPACE
from clusterspace.fleet.propagation.bindings import Claim, Policy, choose_policy
from clusterspace.fleet.propagation.overrides import OverridePolicies
from clusterspace.fleet.propagation.works.rendering import (
    find_share,
    new_work,
    outline_for_binding,
)
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    labels_of,
    name_of,
    namespace_of,
    with_metadata,
    without_value,
)
from clusterspace.kube.resources import GroupKind, GroupVersionKind

_REFUSALS: Final = (
    BadRequest,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotServed,
    RequestEntityTooLarge,
)
"""What is about the object; all else is about the cluster, and ends the plan."""

_ROUNDS: Final = 4
_SOMEWHERE: Final = "default"
_PLACEHOLDER: Final = "00000000-0000-0000-0000-000000000000"
"""As long as the IDs that Works have."""

_POD_TEMPLATES: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    kinds.DEPLOYMENT: ("spec", "template"),
    kinds.STATEFUL_SET: ("spec", "template"),
    kinds.DAEMON_SET: ("spec", "template"),
    kinds.REPLICA_SET: ("spec", "template"),
    kinds.POD: ("spec",),
}
"""What pods are made of: the member's controllers hash this, and replace pods when it differs."""


Render = Callable[[Object], Awaitable[Object]]
"""From a template, as the hub keeps it, to the manifest that a Work will hold."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What taking an object over would do, and the object that was judged."""

    verdict: Verdict
    live: Object
    reason: str = ""
    changes: tuple[str, ...] = ()


def template_for(live: Object, migration: str, *, retains_replicas: bool = False) -> Object:
    """Return the template that a migration makes of an object, as it runs."""
    template = plan_promotion(without_stamps(live), "").template
    if kind_of(live) == NAMESPACE:
        # It is wanted for what goes into it. Without a word about conflicts the member's own is
        # left exactly as it is, and no policy has to carry it.
        kept = dict(annotations_of(template))
        kept.pop(stamps.CONFLICT_RESOLUTION, None)
        template = without_value(with_metadata(template, annotations=kept), "spec")
    annotations = {**annotations_of(template), stamps.MIGRATION: migration}
    labels = dict(labels_of(template))
    if retains_replicas:
        labels[stamps.RETAIN_REPLICAS] = "true"
    return with_metadata(template, annotations=annotations, labels=labels or None)


def pod_template_of(live: Object) -> Object | None:
    """Return what pods of a workload are made of; None for what replaces no pods."""
    path = _POD_TEMPLATES.get(kind_of(live))
    return None if path is None else find_at(live, *path)


async def manifest_for(
    template: Object,
    traits: Traits,
    overrides: OverridePolicies,
    interpreter: Interpreter | None = None,
) -> Object:
    """Return the manifest that a Work will hold.

    OverrideFailed or InterpretationFailed when it cannot be made.
    """
    template = with_metadata(template, uid=_PLACEHOLDER, generation=1)
    namespace = namespace_of(template)
    replicas = replicas_in(template) if not interpreter else await interpreter.replicas(template)
    count = 0 if replicas is None else replicas.count
    label = stamps.BINDING_ID if namespace else stamps.CLUSTER_BINDING_ID
    binding: Object = {
        "apiVersion": works.BINDING_API_VERSION,
        "kind": works.RESOURCE_BINDING if namespace else works.CLUSTER_RESOURCE_BINDING,
        "metadata": {
            "name": works.name_for(template),
            **({"namespace": namespace} if namespace else {}),
            "labels": {label: _PLACEHOLDER},
        },
        "spec": {
            "resource": works.reference_to(template),
            "clusters": [{"name": traits.name, "replicas": count}],
            "preserveResourcesOnDeletion": True,
            **({} if replicas is None else {"replicas": count}),
        },
    }
    target = works.TargetCluster(traits.name, count)
    revised = await revised_for(interpreter, template, binding, target)
    outline = outline_for_binding(binding, template, target, traits, overrides, revised)
    return works.manifests_of(new_work(outline, _PLACEHOLDER))[0]


async def revised_for(
    interpreter: Interpreter | None, template: Object, binding: Object, target: works.TargetCluster
) -> Object | None:
    """Return a template with a cluster's replicas, of a kind whose own interpreter writes them."""
    share = find_share(binding, target)
    if interpreter is None or share is None:
        return None
    if not interpreter.customizes(REVISE_REPLICA, template):
        return None
    return await interpreter.revised(template, share)


async def ask_effect(
    member: Client,
    path: ResourcePath,
    live: Object,
    manifest: Object,
    interpreter: Interpreter | None = None,
) -> Effect:
    """Ask the member what a manifest would make of its object, by a dry run of that very write."""
    retained: Object | None = None
    if interpreter is not None and interpreter.customizes(RETAIN, manifest):
        retained = await interpreter.retained(manifest, live)
    planned, taken = plan_update(manifest, live, retained), live
    if planned is not None:
        dry = WriteOptions(field_manager=FIELD_MANAGER, is_dry_run=True)
        taken = await member.update(path, planned.body, dry)
    effect = effect_of(live, taken)
    if pod_template_of(live) != pod_template_of(taken) and not effect.on_pods:
        return Effect(effect.fields, "pods would restart, for their template would change")
    return effect


@dataclass
class Judge:
    """Asks one hub and one member; made for one plan, or one application of it."""

    hub: Client
    member: Client
    migration: str
    traits: Traits
    hub_serves: ServedResources
    hub_namespaces: frozenset[str] = frozenset()
    cluster_overrides: tuple[Object, ...] = ()
    overrides: Mapping[str, tuple[Object, ...]] = field(
        default_factory=dict[str, tuple[Object, ...]]
    )
    """By namespace."""
    rivals: Mapping[str, tuple[Policy, ...]] = field(default_factory=dict[str, tuple[Policy, ...]])
    """Other policies of the hub, by namespace; those of none are for what has none."""
    at_once: int = 16
    interpreter: Interpreter | None = None
    """Asked as the controllers ask it; without one our own rules hold for every kind."""
    planned_kinds: frozenset[GroupKind] = frozenset()
    """Kinds whose definitions the plan brings to the hub, which does not serve them yet."""

    def __post_init__(self) -> None:
        """Bound the requests that are under way."""
        self._gate = asyncio.Semaphore(self.at_once)

    async def judge(
        self, path: ResourcePath, live: Object, *, retains_replicas: bool = False
    ) -> Judgement:
        """Return what taking an object over would do, as hub and member answer."""
        async with self._gate:
            return await self._judge(path, live, retains_replicas=retains_replicas)

    async def _judge(
        self, path: ResourcePath, live: Object, *, retains_replicas: bool
    ) -> Judgement:
        chosen = annotations_of(live).get(stamps.CONFLICT_RESOLUTION, OVERWRITE)
        if chosen != OVERWRITE:
            why = f"its annotation {stamps.CONFLICT_RESOLUTION}: {chosen} says so"
            return Judgement(Verdict.REFUSED, live, why)
        kind = GroupVersionKind.of(str(live.get("apiVersion")), str(live.get("kind")))
        is_served = self.hub_serves.find_kind(kind) is not None
        if not is_served and kind.group_kind not in self.planned_kinds:
            return Judgement(Verdict.REFUSED, live, f"the hub does not serve {kind}")
        if kind.group_kind == NAMESPACE:
            # The hub gets one of its own; the member's is left as it is.
            return Judgement(Verdict.SAME, live)
        if rival := self._rival_for(live):
            why = f"policy {rival.key} of the hub would claim it: its priority or its name is first"
            return Judgement(Verdict.REFUSED, live, why)
        for _ in range(_ROUNDS - 1):
            try:
                return await self._judge_once(path, live, retains_replicas, is_served=is_served)
            except Conflict:
                # Somebody wrote between our look and the dry run: judge what they wrote.
                live = await self.member.get(path)
            except ClusterTimeout:
                # A dry run can be made again, and one answer that is late ends no plan of hours.
                continue
        try:
            return await self._judge_once(path, live, retains_replicas, is_served=is_served)
        except Conflict as error:
            why = f"somebody changes it without a pause: {error.message}"
            return Judgement(Verdict.REFUSED, live, why)

    def _rival_for(self, live: Object) -> Policy | None:
        """Return the policy that would claim the template, if that is not the migration's own.

        It would carry an object that may overwrite to whichever clusters it likes.
        """
        namespace = namespace_of(live)
        selector = ResourceSelector(
            str(live.get("apiVersion")), str(live.get("kind")), namespace, name_of(live)
        )
        own = Policy(Claim("", policy_name(self.migration, 0), namespace), {}, (selector,))
        chosen = choose_policy(live, (*self.rivals.get(namespace, ()), own))
        return None if chosen is own else chosen

    async def _judge_once(
        self, path: ResourcePath, live: Object, retains_replicas: bool, *, is_served: bool
    ) -> Judgement:
        template = template_for(live, self.migration, retains_replicas=retains_replicas)
        overrides = OverridePolicies(
            self.cluster_overrides, self.overrides.get(namespace_of(live), ())
        )
        return await self._judge_rendered(
            path,
            live,
            template,
            lambda kept: manifest_for(kept, self.traits, overrides, self.interpreter),
            is_served,
        )

    async def dependencies(self, live: Object) -> tuple[Dependency, ...]:
        """Return what an object needs beside it; InterpretationFailed when nobody can tell."""
        if self.interpreter is None:
            return dependencies_in(live)
        return await self.interpreter.dependencies(live)

    async def judge_carried(
        self, path: ResourcePath, live: Object, template: Object, render: Render
    ) -> Judgement:
        """Return what a template that comes from another hub would make of the member's object.

        `render` makes the manifest of what the hub would keep of the template.
        """
        kind = GroupVersionKind.of(str(live.get("apiVersion")), str(live.get("kind")))
        is_served = self.hub_serves.find_kind(kind) is not None
        if not is_served and kind.group_kind not in self.planned_kinds:
            return Judgement(Verdict.REFUSED, live, f"the hub does not serve {kind}")
        async with self._gate:
            try:
                return await self._judge_rendered(path, live, template, render, is_served)
            except Conflict as error:
                why = f"somebody changes it just now: {error.message}"
                return Judgement(Verdict.REFUSED, live, why)

    async def _judge_rendered(
        self, path: ResourcePath, live: Object, template: Object, render: Render, is_served: bool
    ) -> Judgement:
        try:
            if is_served:
                template = await self._as_hub_keeps(path, template)
            manifest = await render(template)
        except _REFUSALS as error:
            return Judgement(Verdict.REFUSED, live, f"the hub refuses it: {error.message}")
        except (OverrideFailed, InterpretationFailed) as error:
            return Judgement(Verdict.REFUSED, live, str(error))
        return await self.judge_manifest(path, live, manifest)

    async def judge_manifest(self, path: ResourcePath, live: Object, manifest: Object) -> Judgement:
        """Return what the manifest of a Work would make of the member's object."""
        try:
            effect = await ask_effect(self.member, path, live, manifest, self.interpreter)
        except InterpretationFailed as error:
            return Judgement(Verdict.REFUSED, live, str(error))
        except _REFUSALS as error:
            return Judgement(Verdict.REFUSED, live, f"the member refuses it: {error.message}")
        except NotFound:
            return Judgement(Verdict.REFUSED, live, "it is gone from the member")
        if effect.on_pods:
            return Judgement(Verdict.WOULD_RESTART, live, effect.on_pods, effect.fields)
        if effect.fields:
            named = ", ".join(effect.fields[:3]) + (" and more" if effect.fields[3:] else "")
            return Judgement(Verdict.CHANGES, live, f"{named} would change", effect.fields)
        return Judgement(Verdict.SAME, live)

    async def _as_hub_keeps(self, path: ResourcePath, template: Object) -> Object:
        """Return a template as the hub would store it, with its defaults and without its unknowns.

        A namespace that the hub does not have yet is no reason not to ask: the dry run is made in
        another one, under a name that nobody has.
        """
        asked, where = template, path.collection
        stands_in = bool(path.namespace) and path.namespace not in self.hub_namespaces
        if stands_in:
            where = ResourcePath(path.resource, _SOMEWHERE)
            asked = with_metadata(template, namespace=_SOMEWHERE)
        dry = WriteOptions(is_dry_run=True)
        try:
            kept = await self.hub.create(where, asked, dry)
        except AlreadyExists:
            if not stands_in:
                raise BadRequest(f"{path} is on the hub already") from None
            kept = await self.hub.create(
                where, with_metadata(asked, name=f"{name_of(asked)[:200]}-migrated"), dry
            )
        except ApiError as error:
            if isinstance(error, NotFound):
                raise BadRequest(error.message) from error
            raise
        own: Object = {"name": name_of(template), "namespace": path.namespace or None}
        return with_metadata(kept, **own)
