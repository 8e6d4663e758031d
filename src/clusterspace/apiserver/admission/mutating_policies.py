"""MutatingAdmissionPolicy: expressions that change what is written.

A mutation is a configuration that is merged into the object, as server-side apply merges one, or a
JSON patch. Policies are applied in the order of their names, each to what the one before it left;
one with `reinvocationPolicy: IfNeeded` is applied again, once, when something changed what it had
seen. A policy that fails refuses the write, unless its `failurePolicy` is `Ignore`.
https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.admission.matching import Followed, concerns_no_policy
from clusterspace.apiserver.admission.policies import (
    Binding,
    ConditionsFailed,
    Hook,
    Misconfigured,
    Policy,
    PolicyMisconfigured,
    PolicyReader,
    conditions_hold,
    evaluation_of,
    namespace_object,
    params_of,
    values_of,
)
from clusterspace.apiserver.admission.reviewed import reviewed, with_changed
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.state import Admission, HubState, Plugin
from clusterspace.errors import (
    ApiError,
    Cause,
    Details,
    Forbidden,
    InapplicablePatch,
    PatchTestFailed,
)
from clusterspace.kube.causes import quoted
from clusterspace.kube.cel import requests
from clusterspace.kube.cel.requests import EvaluationError, Expression, OutOfBudget
from clusterspace.kube.cel.values import StructValue
from clusterspace.kube.json_patches import apply_json_patch, parse_json_patch
from clusterspace.kube.managed_fields.apply import find_mistakes
from clusterspace.kube.managed_fields.field_sets import FIELD, INDEX, as_text
from clusterspace.kube.managed_fields.typed_values import (
    field_schema,
    item_schema,
    merge,
    object_schema,
)
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.schemas.model import Schema


@dataclass(frozen=True, slots=True)
class Mutation:
    """An entry of `mutations`."""

    expression: Expression
    is_patch: bool


@dataclass(frozen=True, slots=True)
class Mutations:
    """What a mutating policy evaluates."""

    mutations: tuple[Mutation, ...]
    is_reinvoked: bool

    @classmethod
    def read(cls, raw: Object, policy: Policy) -> "Mutations":
        """Compile what a policy says."""
        spec, listed = cast("Object", raw.get("spec") or {}), list[Mutation]()
        for each in cast("list[Object]", spec.get("mutations") or []):
            is_patch = each.get("patchType") == "JSONPatch"
            given = each.get("jsonPatch" if is_patch else "applyConfiguration")
            text = str(cast("Object", given or {}).get("expression") or "").strip()
            results = requests.PATCHES if is_patch else requests.CONFIGURATION
            listed.append(Mutation(policy.declared.compile(text, results), is_patch))
        return cls(tuple(listed), spec.get("reinvocationPolicy") == "IfNeeded")


class _Failed(Exception):
    """A mutation cannot be made; the failure policy decides."""


@dataclass(frozen=True, slots=True)
class _Invocation:
    """A policy that is about a request, with one set of parameters."""

    hook: Hook[Mutations]
    binding: Binding
    served: Served
    params: Object | None

    @property
    def key(self) -> tuple[str, ...]:
        """What it is known by when it is applied again."""
        own = (self.hook.policy.name, self.binding.name)
        return (
            own if self.params is None else (*own, namespace_of(self.params), name_of(self.params))
        )


@dataclass(slots=True)
class _Reinvoked:
    """Which invocations are made again, and what the last of them left."""

    called: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    due: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    last: Object | None = None

    def require_all(self) -> None:
        """Have all made again that want to be and have not seen the object as it is now."""
        self.due |= self.called
        self.called = set()


@dataclass(slots=True)
class _Errors:
    """What policies could not do and do not ignore."""

    messages: list[str] = field(default_factory=list[str])
    reason: str = ""

    def add(self, policy: Policy, binding: Binding | None, why: object, reason: str = "") -> None:
        if policy.ignores_failure:
            return
        if binding is None:
            named = f"policy {quoted(policy.name)}"
        else:
            named = f"policy '{policy.name}' with binding '{binding.name}'"
        if not self.messages:
            self.reason = reason
        self.messages.append(f"{named} denied request: {why}")

    def refusal(self, admission: Admission) -> ApiError:
        info = admission.served.info
        causes = tuple(Cause("", each, "") for each in self.messages)
        details = Details(admission.name, info.group, info.plural, causes=causes)
        refusal = Forbidden(self.messages[0], details)
        refusal.reason = self.reason or refusal.reason
        return refusal


class MutatingPolicies(Plugin):
    """Applies the mutations of policies."""

    name: ClassVar[str] = "MutatingAdmissionPolicy"

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer
        self._hooks = Followed[tuple[Hook[Mutations], ...]](
            ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
            PolicyReader(Mutations.read),
        )

    async def mutate(self, hub: HubState, admission: Admission) -> Object:
        """Return the object as the policies want it."""
        hooks = self._hooks.current
        if hooks is None:
            hooks = await self._hooks.read(hub)
        if not hooks or concerns_no_policy(admission):
            return admission.new
        errors = _Errors()
        # Which are made is decided by the object as it came; what they see is what others left.
        invocations = [
            each for hook in hooks for each in await _invocations(hub, admission, hook, errors)
        ]
        again = admission.reinvocation
        memory = again.memory.setdefault(MutatingPolicies, _Reinvoked())
        if again.is_again and memory.last is not None and memory.last != admission.new:
            memory.require_all()
        for each in invocations:
            before = admission.new
            try:
                changed = await self._apply(hub, admission, each, memory)
            except ConditionsFailed as failed:
                errors.add(each.hook.policy, each.binding, failed, "Invalid")
                continue
            if changed is None:
                continue
            admission, failures = changed
            for failed in failures:
                errors.add(each.hook.policy, each.binding, failed, "Invalid")
            if admission.new is not before and admission.new != before:
                memory.require_all()
                again.is_wanted = True
            if each.hook.kind.is_reinvoked:
                memory.called.add(each.key)
        memory.last = admission.new
        if errors.messages:
            raise errors.refusal(admission)
        return admission.new

    async def _apply(
        self, hub: HubState, admission: Admission, invocation: _Invocation, memory: _Reinvoked
    ) -> tuple[Admission, list[_Failed]] | None:
        """Make the mutations of a policy, one after the other; None when it is not due."""
        policy = invocation.hook.policy
        namespace = await namespace_object(hub, admission)
        failures: list[_Failed] = []
        for index, mutation in enumerate(invocation.hook.kind.mutations):
            seen = await reviewed(hub, admission, invocation.served, is_unborn=True)
            values = values_of(self._authorizer, admission, seen, invocation.params, namespace)
            if index == 0:

                def holds(values: Any = values) -> bool:
                    return conditions_hold(policy.conditions, values, policy.effort)

                if not await policy.effort.run(admission, holds):
                    return None
                if admission.reinvocation.is_again and invocation.key not in memory.due:
                    return None
            before = seen.new
            if before is None:
                break

            def work(
                mutation: Mutation = mutation, values: Any = values, before: Object = before
            ) -> Object:
                schema = invocation.served.rules.schema
                return _mutated(policy, mutation, values, before, schema)

            try:
                patched = await policy.effort.run(admission, work)
            except _Failed as failed:
                failures.append(failed)
                continue
            if patched is not before:
                changed = await with_changed(admission, seen, patched, is_strict=mutation.is_patch)
                admission = admission.about(changed)
        policy.effort.finish()
        return admission, failures


async def _invocations(
    hub: HubState, admission: Admission, hook: Hook[Mutations], errors: _Errors
) -> list[_Invocation]:
    """Return how often a policy is applied to a request, and with which parameters."""
    served = await hook.policy.matcher.match(hub, admission)
    if served is None:
        return []
    found: list[_Invocation] = []
    for binding in hook.bindings:
        if binding.matcher and await binding.matcher.match(hub, admission) is None:
            continue
        try:
            params = await params_of(hub, hook.policy, binding, admission)
        except PolicyMisconfigured as why:
            errors.add(hook.policy, None, f"failed to configure policy: {why}")
            return []
        except Misconfigured as why:
            errors.add(hook.policy, binding, f"failed to configure binding: {why}")
            continue
        found += [_Invocation(hook, binding, served, each) for each in params]
    return found


def _mutated(
    policy: Policy, mutation: Mutation, values: Any, before: Object, schema: Schema
) -> Object:
    """Return the object as a mutation wants it; the same one when it changes nothing."""
    evaluation = evaluation_of(policy, values)
    try:
        value = evaluation.evaluate(mutation.expression)
    except (EvaluationError, OutOfBudget) as error:
        raise _Failed(str(error)) from error
    finally:
        policy.effort.note(evaluation)
    if mutation.is_patch:
        operations = [_operation(each) for each in cast("list[StructValue]", value)]
        try:
            return apply_json_patch(before, parse_json_patch(operations))
        except PatchTestFailed:
            return before
        except InapplicablePatch as error:
            raise _Failed(f"JSON Patch: {error.words}") from error
        except ApiError as error:
            raise _Failed(f"JSON Patch: {error.message}") from error
    _require_names(value)
    configuration: Object = {
        **cast("Object", _plain(value)),
        "apiVersion": before["apiVersion"],
        "kind": before["kind"],
    }
    whole = object_schema(schema)
    mistakes = find_mistakes(configuration, whole)
    if mistakes:
        why = "failed to convert patch object to typed object"
        raise _Failed(f"error applying patch: {why}: {mistakes}")
    atomic = ", ".join(_atomic_places(configuration, whole))
    if atomic:
        why = "may not mutate atomic arrays, maps or structs"
        raise _Failed(f"error applying patch: invalid ApplyConfiguration: {why}: {atomic}")
    return merge(before, configuration, whole)


def _operation(given: StructValue) -> Object:
    if "value" in given:
        _require_names(given["value"])
    return {name: _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    """Return a value of an expression as JSON has it."""
    match value:
        case dict():
            fields = cast("Object", value)
            return {str(name): _plain(each) for name, each in fields.items()}
        case list():
            return [_plain(each) for each in cast("list[Any]", value)]
        case _:
            return value


def _require_names(value: Any) -> None:
    """Refuse an object whose type is not that of the place it stands at."""
    if not isinstance(value, StructValue):
        return
    wrong = "\n".join(_misnamed(value, value.type_name))
    if wrong:
        raise _Failed(f"type mismatch: {wrong}")


def _misnamed(value: Any, wanted: str) -> Iterator[str]:
    if isinstance(value, StructValue):
        if value.type_name != wanted:
            yield (
                f"unexpected type name {quoted(value.type_name)}, expected {quoted(wanted)}, "
                "which matches field name path from root Object type"
            )
        for name, each in value.items():
            yield from _misnamed(each, f"{wanted}.{name}")
    elif isinstance(value, list | dict):
        inside = cast("Any", value.values() if isinstance(value, dict) else value)
        for each in inside:
            yield from _misnamed(each, wanted)


def _atomic_places(value: Any, schema: Schema, path: str = "") -> Iterator[str]:
    """Yield where a configuration would replace a whole list or map that has no parts."""
    if isinstance(value, dict):
        if schema.map_is_atomic:
            yield path
        for name, each in cast("Object", value).items():
            place = path + as_text(FIELD + name)
            yield from _atomic_places(each, field_schema(schema, name), place)
    elif isinstance(value, list):
        if schema.list_type == "atomic":
            yield path
        for index, each in enumerate(cast("list[Any]", value)):
            place = path + as_text(f"{INDEX}{index}")
            yield from _atomic_places(each, item_schema(schema), place)
