"""What is to be made of objects of any kind: asked of whoever knows it best.

    a script of a customization > a webhook > what we know ourselves (apis/interpreter)

Who says nothing about an operation leaves it to the next. Who is asked and fails has failed: the
next one's answer would be a wrong one, so InterpretationFailed says who and why, and whoever asked
leaves things as they are. For a kind that nobody speaks of the question costs a lookup.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

from clusterspace.apis.interpreter import reports as built_in_reports
from clusterspace.apis.interpreter import templates as built_in
from clusterspace.apis.interpreter.reports import Reports
from clusterspace.apis.interpreter.templates import Dependency, Replicas
from clusterspace.apis.interpreters import (
    AGGREGATE_STATUS,
    CUSTOMIZATION,
    CUSTOMIZATIONS,
    INTERPRET_COMPONENT,
    INTERPRET_DEPENDENCY,
    INTERPRET_HEALTH,
    INTERPRET_REPLICA,
    INTERPRET_STATUS,
    RETAIN,
    REVISE_REPLICA,
    SCRIPT_FIELDS,
    WEBHOOK_CONFIGURATIONS,
    InterpreterWebhook,
    read_webhooks,
    script_of,
    target_of,
)
from clusterspace.apis.overrides import grants_rights, require_same_object
from clusterspace.apis.works import HEALTHY, UNHEALTHY
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.webhooks import Webhooks
from clusterspace.controllers.informers import HubCaches, Informer, Update
from clusterspace.errors import InterpretationFailed, Malformed, OverrideFailed, ScriptFailed
from clusterspace.fleet.interpretation import webhooks as webhook_calls
from clusterspace.fleet.interpretation.customizations import OPERATIONS
from clusterspace.fleet.interpretation.lua_workers import LuaPool
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionKind

RETRY_SECONDS: Final = 10.0
"""When to ask again whoever failed, if nothing changes before."""

_Kind: TypeAlias = tuple[str, str]
"""An apiVersion and a kind."""
_Answerer: TypeAlias = InterpreterWebhook | tuple[tuple[str, str], ...]
"""A webhook, or the scripts to run, each with the name of its customization."""

_Read = TypeVar("_Read")

_OPERATIONS: Final = {each.name: each for each in OPERATIONS}


class Interpreter:
    """Answers for all kinds; made by `caches.shared`, one for the controllers of a process."""

    # What is known of a kind is put together when it is first asked for, and forgotten with every
    # change of a customization or a webhook. The handler that forgets is the first of its informer:
    # whoever is woken by the same change finds the new answerers.

    def __init__(self, caches: HubCaches) -> None:
        clock = caches.hub.connection.clock
        self._customizations = caches.informer(CUSTOMIZATIONS)
        self._configurations = caches.informer(WEBHOOK_CONFIGURATIONS)
        self._known: dict[_Kind, dict[str, _Answerer]] = {}
        self._is_fixed = False
        for each in self.informers:
            each.add_handler(lambda _: self._known.clear())
        self._scripts = LuaPool(clock)
        self._webhooks = Webhooks(clock=clock)

    @property
    def informers(self) -> tuple[Informer, Informer]:
        """What a reconciler watches that asks: it must be synced, and changes what was answered."""
        return self._customizations, self._configurations

    @property
    def runs(self) -> int:
        """How often a script was run; what was asked before is answered from memory."""
        return self._scripts.runs

    async def read_once(self, hub: ClusterClient) -> None:
        """Read what customizations and webhooks say now, for a look that follows nothing."""
        for informer, resource in zip(
            self.informers, (CUSTOMIZATIONS, WEBHOOK_CONFIGURATIONS), strict=True
        ):
            async for page in hub.pages(ResourcePath(resource)):
                for item in page.items:
                    informer.cache.put(item)
        self._is_fixed = True

    def reach_by(self, webhooks: Webhooks) -> None:
        """Call webhooks by other rules about addresses than the usual ones."""
        self._webhooks = webhooks

    async def run(self) -> None:
        """Keep connections between calls; end all processes when this is cancelled."""
        try:
            await self._webhooks.run()
        finally:
            await self._scripts.close()

    def customizes(self, operation: str, about: Object) -> bool:
        """Whether a script or a webhook is asked for an operation about objects of a kind."""
        return self._find(operation, about) is not None

    async def replicas(self, template: Object) -> Replicas | None:
        """Return the replicas a template asks for; None for kinds that have none."""
        if (found := self._find(INTERPRET_REPLICA, template)) is None:
            return _readable(INTERPRET_REPLICA, template, built_in.replicas_in)
        count, requirements = await self._ask(found, INTERPRET_REPLICA, template)
        if requirements and not requirements.get("namespace") and namespace_of(template):
            # Karmada adds it for who counts quotas of members, which we do.
            requirements = {**requirements, "namespace": namespace_of(template)}
        return Replicas(count, requirements)

    async def components(self, template: Object) -> list[Object] | None:
        """Return the parts of a workload with pods of several kinds; None where nobody says."""
        if (found := self._find(INTERPRET_COMPONENT, template)) is None:
            return _readable(INTERPRET_COMPONENT, template, built_in.components_in)
        (components,) = await self._ask(found, INTERPRET_COMPONENT, template)
        return components

    async def revised(self, template: Object, replicas: int) -> Object:
        """Return the template with this many replicas; the same one for kinds that have none."""
        if (found := self._find(REVISE_REPLICA, template)) is None:
            return built_in.with_replicas(template, replicas)
        (revised,) = await self._ask(found, REVISE_REPLICA, template, replicas)
        try:
            # An administrator's script is not a way around the rules for overrides.
            require_same_object(template, revised)
        except OverrideFailed as error:
            raise InterpretationFailed(_sentence(REVISE_REPLICA, template, found, error)) from None
        return revised

    async def dependencies(self, template: Object) -> tuple[Dependency, ...]:
        """Return what a template needs beside it, each once, in order."""
        if (found := self._find(INTERPRET_DEPENDENCY, template)) is None:
            return built_in.dependencies_in(template)
        (listed,) = await self._ask(found, INTERPRET_DEPENDENCY, template)
        try:
            return tuple(sorted({Dependency.read(each) for each in listed}))
        except Malformed as error:
            why = _sentence(INTERPRET_DEPENDENCY, template, found, error)
            raise InterpretationFailed(why) from None

    async def health(self, live: Object) -> str:
        """Return Healthy or Unhealthy."""
        if (found := self._find(INTERPRET_HEALTH, live)) is None:
            return built_in_reports.health_of(live)
        (is_healthy,) = await self._ask(found, INTERPRET_HEALTH, live)
        return HEALTHY if is_healthy else UNHEALTHY

    async def status(self, live: Object) -> Object | None:
        """Return the status to report of an object; None when there is nothing to report."""
        if (found := self._find(INTERPRET_STATUS, live)) is None:
            return built_in_reports.reflect_status(live)
        (status,) = await self._ask(found, INTERPRET_STATUS, live)
        return status or None

    async def retained(self, manifest: Object, live: Object) -> Object:
        """Return the manifest with what the member keeps in it."""
        if (found := self._find(RETAIN, manifest)) is None:
            return built_in.retain(manifest, live)
        marked = built_in.retain_words(manifest, live)
        (retained,) = await self._ask(found, RETAIN, marked, live)
        is_same = all(retained.get(each) == manifest.get(each) for each in ("apiVersion", "kind"))
        if not is_same or grants_rights(str(manifest.get("apiVersion"))):
            why = "it may change neither what an object is nor what it grants"
            raise InterpretationFailed(_sentence(RETAIN, manifest, found, why))
        return retained

    def aggregates(self, kind: GroupVersionKind) -> bool:
        """Whether the statuses of a kind are summed up on its templates."""
        if built_in_reports.is_aggregated(kind.group_kind):
            return True
        return AGGREGATE_STATUS in self._answerers((kind.group_version.api_version, kind.kind))

    async def aggregated(
        self, template: Object, reports: Reports, items: Iterable[Object]
    ) -> Object:
        """Return the status a template should show, of what its clusters report."""
        if (found := self._find(AGGREGATE_STATUS, template)) is None:
            return built_in_reports.aggregated_status(template, reports)
        (shown,) = await self._ask(found, AGGREGATE_STATUS, template, list(items))
        status = shown.get("status")
        return cast("Object", status) if isinstance(status, dict) else {}

    def concerns(self, update: Update, kind: GroupVersionKind) -> bool:
        """Whether a change of a customization or a webhook may change what is said of a kind."""
        for each in (update.decode_before(), update.decode_after()):
            if each is None:
                continue
            if each.get("kind") == CUSTOMIZATION:
                if target_of(each) == (kind.group_version.api_version, kind.kind):
                    return True
                continue
            hooks = read_webhooks([each])
            if any(hook.interprets(operation, kind) for hook in hooks for operation in _OPERATIONS):
                return True
        return False

    def _find(self, operation: str, about: Object) -> _Answerer | None:
        kind = str(about.get("apiVersion")), str(about.get("kind"))
        return self._answerers(kind).get(operation)

    def _answerers(self, kind: _Kind) -> Mapping[str, _Answerer]:
        known = self._known.get(kind)
        if known is not None:
            return known
        if not self._is_fixed and not all(each.has_synced for each in self.informers):
            # Taken for "nobody says anything" it would undo what was done by what they said.
            raise InterpretationFailed("the customizations of the hub are not known yet")
        found = self._known[kind] = {}
        if not any(len(each.cache) for each in self.informers):
            return found
        # Backwards, so that what is more binding replaces what is less: webhooks come before
        # scripts here, and the first by name last.
        hooks = read_webhooks(self._configurations.cache.objects())
        named = GroupVersionKind.of(*kind)
        for hook in reversed(hooks):
            found |= {each: hook for each in SCRIPT_FIELDS if hook.interprets(each, named)}
        by_name = sorted(self._customizations.cache.objects(), key=name_of, reverse=True)
        for customization in by_name:
            if target_of(customization) != kind:
                continue
            for operation in SCRIPT_FIELDS:
                if not (script := script_of(customization, operation)):
                    continue
                ours = ((name_of(customization), script),)
                before = found.get(operation)
                if operation == INTERPRET_DEPENDENCY and isinstance(before, tuple):
                    ours = (*ours, *before)  # what all of them say counts
                found[operation] = ours
        return found

    async def _ask(self, found: _Answerer, operation: str, *arguments: Any) -> tuple[Any, ...]:
        try:
            if isinstance(found, InterpreterWebhook):
                return await webhook_calls.ask(self._webhooks, found, operation, *arguments)
            answers = [
                await _OPERATIONS[operation].run(self._scripts, script, *arguments)
                for _, script in found
            ]
        except (InterpretationFailed, ScriptFailed) as error:
            why = _sentence(operation, arguments[0], found, error)
            raise InterpretationFailed(why) from error
        if len(answers) == 1:
            return answers[0]
        return ([each for (listed,) in answers for each in listed],)


def _readable(operation: str, about: Object, read: Callable[[Object], _Read]) -> _Read:
    """Return what is read of an object; of a kind of others nobody has checked what it says."""
    try:
        return read(about)
    except (Malformed, AttributeError, KeyError, TypeError, ValueError) as error:
        why = f"{operation} of {about.get('kind')}: it cannot be read: {error}"
        raise InterpretationFailed(why) from error


def _sentence(operation: str, about: Object, found: _Answerer, why: object) -> str:
    """Return who failed to say what of which kind, and why."""
    if isinstance(found, InterpreterWebhook):
        who = f"webhook {found.name} of {found.configuration}"
    else:
        who = f"{CUSTOMIZATION} {', '.join(name for name, _ in found)}"
    return f"{operation} of {about.get('kind')} by {who}: {why}"
