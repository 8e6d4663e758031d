"""ValidatingAdmissionPolicy: expressions that a request must satisfy.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Final, cast

import msgspec

from clusterspace.apiserver import forms
from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.admission.matching import GROUP, Followed, concerns_no_policy
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
from clusterspace.apiserver.admission.reviewed import Reviewed, reviewed
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.identity.following import find_object, follow
from clusterspace.apiserver.state import EVERY_OPERATION, Admission, HubState, Operation, Plugin
from clusterspace.apiserver.writing import SELF, edit_own, write_of
from clusterspace.errors import (
    ApiError,
    Cause,
    Details,
    Forbidden,
    Invalid,
    RequestEntityTooLarge,
    Unauthorized,
)
from clusterspace.kube.causes import quoted
from clusterspace.kube.cel import requests
from clusterspace.kube.cel.requests import (
    ANYTHING,
    Declarations,
    Evaluation,
    EvaluationError,
    Expression,
    OutOfBudget,
)
from clusterspace.kube.cel.schema_types import type_of
from clusterspace.kube.cel.types import DYN, Field, Type
from clusterspace.kube.objects import Object, find_at, metadata_of
from clusterspace.kube.resources import parse_api_version
from clusterspace.kube.schemas.model import OBJECT_META

_LONGEST_MESSAGE: Final = 5 * 1024
_LONGEST_ANNOTATION: Final = 10 * 1024
_FAILURE: Final = "validation.policy.admission.k8s.io/validation_failure"

_REFUSALS: Final[Mapping[str, type[ApiError]]] = {
    "Forbidden": Forbidden,
    "Invalid": Invalid,
    "RequestEntityTooLarge": RequestEntityTooLarge,
    "Unauthorized": Unauthorized,
}


@dataclass(frozen=True, slots=True)
class Validation:
    """An entry of `validations`."""

    expression: Expression
    message: str
    message_expression: Expression | None
    reason: str


@dataclass(frozen=True, slots=True)
class AuditAnnotation:
    """An entry of `auditAnnotations`."""

    key: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Validations:
    """What a validating policy evaluates."""

    validations: tuple[Validation, ...]
    annotations: tuple[AuditAnnotation, ...]

    @classmethod
    def read(cls, raw: Object, policy: Policy) -> "Validations":
        """Compile what a policy says."""
        spec, declared = cast("Object", raw.get("spec") or {}), policy.declared

        def message_of(each: Object) -> Expression | None:
            text = str(each.get("messageExpression") or "")
            if not text.strip():
                return None
            return declared.compile(text, requests.TEXT, has_authorizer=False)

        return cls(
            tuple(
                Validation(
                    declared.compile(str(each.get("expression") or ""), requests.TRUTH),
                    str(each.get("message") or ""),
                    message_of(each),
                    str(each.get("reason") or "Invalid"),
                )
                for each in cast("list[Object]", spec.get("validations") or [])
            ),
            tuple(
                AuditAnnotation(
                    str(each.get("key") or ""),
                    declared.compile(
                        str(each.get("valueExpression") or "").strip(), requests.TEXT_OR_NULL
                    ),
                )
                for each in cast("list[Object]", spec.get("auditAnnotations") or [])
            ),
        )


@dataclass(frozen=True, slots=True)
class _Denial:
    """A validation that failed, or something that made it impossible to evaluate one."""

    policy: str
    binding: str
    message: str
    reason: str = "Invalid"
    index: int = 0

    @property
    def shown(self) -> str:
        bound = f" with binding '{self.binding}'" if self.binding else ""
        return f"ValidatingAdmissionPolicy '{self.policy}'{bound} denied request: {self.message}"


class ValidatingPolicies(Plugin):
    """Refuses, warns of and records what policies find."""

    name: ClassVar[str] = "ValidatingAdmissionPolicy"
    handles: ClassVar[frozenset[Operation]] = EVERY_OPERATION

    def __init__(self, authorizer: HubAuthorizer) -> None:
        self._authorizer = authorizer
        self._hooks = Followed[tuple[Hook[Validations], ...]](
            ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
            PolicyReader(Validations.read),
        )

    async def validate(self, hub: HubState, admission: Admission) -> None:
        """Evaluate every policy that is about the request; the first denial is the answer."""
        hooks = self._hooks.current
        if hooks is None:
            hooks = await self._hooks.read(hub)
        if not hooks or concerns_no_policy(admission):
            return
        denials: list[_Denial] = []
        for hook in hooks:
            denials += await self._apply(hub, admission, hook)
        if denials:
            # The answer to a delete of many names none of them, as Kubernetes' does.
            info, name = admission.served.info, admission.name or "Unknown"
            message = denials[0].shown
            details = Details(name, info.group, info.plural, causes=(Cause("", message, ""),))
            kind = _REFUSALS.get(denials[0].reason, Invalid)
            raise kind(f"{info.group_resource} {quoted(name)} is forbidden: {message}", details)

    async def _apply(
        self, hub: HubState, admission: Admission, hook: Hook[Validations]
    ) -> list[_Denial]:
        """Return what a policy denies; warn of and record what it says of the rest."""
        policy = hook.policy
        matched = await policy.matcher.match(hub, admission)
        if matched is None:
            return []
        denials: list[_Denial] = []
        annotations: dict[str, list[str]] = {}
        seen: Reviewed | None = None
        namespace: Object | None = None
        for binding in hook.bindings:
            if binding.matcher and await binding.matcher.match(hub, admission) is None:
                continue
            try:
                params = await params_of(hub, policy, binding, admission)
            except PolicyMisconfigured as why:
                message = f"failed to configure policy: {why}"
                return [] if policy.ignores_failure else [_Denial(policy.name, "", message)]
            except Misconfigured as why:
                if not policy.ignores_failure:
                    message = f"failed to configure binding: {why}"
                    denials.append(_Denial(policy.name, binding.name, message))
                continue
            if seen is None:
                seen = await reviewed(hub, admission, matched)
                namespace = await namespace_object(hub, admission)
            for each in params:
                values = values_of(self._authorizer, admission, seen, each, namespace)

                def judge(
                    binding: Binding = binding, values: Mapping[str, Any] = values
                ) -> tuple[list[_Denial], list[tuple[str, str]]]:
                    return _judge(hook, binding, values)

                found, said = await policy.effort.run(admission, judge)
                denials += _acted_on(found, binding, admission)
                for key, value in said:
                    listed = annotations.setdefault(key, [])
                    if value not in listed:
                        listed.append(value)
        for key, listed in annotations.items():
            admission.annotate(f"{policy.name}/{key}", ", ".join(listed))
        return denials


def _judge(
    hook: Hook[Validations], binding: Binding, values: Mapping[str, Any]
) -> tuple[list[_Denial], list[tuple[str, str]]]:
    """Evaluate a policy for one set of parameters: what fails, and what is to be recorded."""
    policy, kind = hook.policy, hook.kind

    def failure(message: object, index: int = 0) -> list[_Denial]:
        if policy.ignores_failure:
            return []
        return [_Denial(policy.name, binding.name, str(message), index=index)]

    try:
        if not conditions_hold(policy.conditions, values, policy.effort):
            return [], []
    except ConditionsFailed as failed:
        return failure(failed), []
    evaluation = evaluation_of(policy, values)
    results: list[bool | EvaluationError] = []
    for each in kind.validations:
        try:
            results.append(evaluation.evaluate(each.expression) is True)
        except EvaluationError as failed:
            results.append(failed)
        except OutOfBudget as spent:
            return failure(spent), []
        finally:
            policy.effort.note(evaluation)
    policy.effort.finish()
    denials: list[_Denial] = []
    for index, (validation, result) in enumerate(zip(kind.validations, results, strict=True)):
        if isinstance(result, EvaluationError):
            denials += failure(result, index)
        elif not result:
            try:
                message = _message(validation, evaluation)
            except OutOfBudget as spent:
                denials += failure(f"failed messageExpression: {spent}", index)
                continue
            denials.append(_Denial(policy.name, binding.name, message, validation.reason, index))
    try:
        annotations = _recorded(hook, values, lambda failed: denials.extend(failure(failed)))
    except OutOfBudget as spent:
        return failure(spent), []
    return denials, annotations


def _recorded(
    hook: Hook[Validations],
    values: Mapping[str, Any],
    on_failure: Callable[[EvaluationError], None],
) -> list[tuple[str, str]]:
    """Return what a policy has to say to those who read the audit log."""
    evaluation, said = evaluation_of(hook.policy, values), list[tuple[str, str]]()
    for annotation in hook.kind.annotations:
        try:
            value = evaluation.evaluate(annotation.value)
        except EvaluationError as failed:
            on_failure(failed)
            continue
        finally:
            hook.policy.effort.note(evaluation)
        if isinstance(value, str) and value.strip():
            said.append((annotation.key, value.strip()[:_LONGEST_ANNOTATION]))
    return said


def _message(validation: Validation, evaluation: Evaluation) -> str:
    """Return why a validation refuses: what it computes, else what it says, else what it is."""
    if validation.message_expression is not None:
        try:
            made = evaluation.evaluate(validation.message_expression)
        except EvaluationError:
            made = ""
        text = made.strip() if isinstance(made, str) else ""
        if text and "\n" not in text and len(text.encode()) <= _LONGEST_MESSAGE:
            return text
    written = validation.message.strip()
    return written or f"failed expression: {validation.expression.text.strip()}"


def _acted_on(denials: list[_Denial], binding: Binding, admission: Admission) -> Iterator[_Denial]:
    """Yield the denials that a binding refuses the request for; warn of and record the others."""
    for denial in denials:
        if "Deny" in binding.actions:
            yield denial
        if "Warn" in binding.actions:
            admission.warn(
                f"Validation failed for ValidatingAdmissionPolicy '{denial.policy}' "
                f"with binding '{binding.name}': {denial.message}"
            )
        if "Audit" in binding.actions:
            failure = {
                "message": denial.message,
                "policy": denial.policy,
                "binding": binding.name,
                "expressionIndex": denial.index,
                "validationActions": binding.actions,
            }
            admission.annotate(_FAILURE, msgspec.json.encode([failure]).decode())


# -- type checks -----------------------------------------------------------------------------------
#
# Expressions see objects of any kind, so that a policy with a misspelt field is accepted and fails
# when it is evaluated. For kinds that a policy names, its expressions are compiled again with their
# types, and what that finds is written to the policy's status. In Kubernetes a controller of
# kube-controller-manager does it; one beside this server finds nothing left to do.
# https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#type-checking

_POLICIES: Final = "validatingadmissionpolicies"
_MANAGER: Final = "validatingadmissionpolicy-status"
_MOST_TYPES: Final = 10
"""Kinds that a policy is checked with, as in Kubernetes."""


class PolicyTypeChecks:
    """Follows policies and writes what their type checks found to their status."""

    def __init__(self, hub: HubState) -> None:
        self._hub = hub
        self._policies = hub.catalog.get_storage(GROUP, _POLICIES)

    async def run(self) -> None:
        """Work until cancelled."""
        await follow(self._hub, (self._policies.prefix(),), self._look)

    async def _look(self, key: str) -> None:
        policy = await find_object(self._hub, GROUP, _POLICIES, "", forms.name_in(key))
        if policy is None:
            return
        generation = int(metadata_of(policy).get("generation") or 0)
        if int(find_at(policy, "status", "observedGeneration") or 0) >= generation:
            return
        catalog = self._hub.catalog.all()
        warnings = await off_loop(SELF.name, lambda: list(type_warnings(policy, catalog)))

        def checked(live: Object) -> Object:
            # Another generation has an event of its own, which brings us back.
            if metadata_of(live).get("generation") != generation:
                return live
            found: Object = {"expressionWarnings": warnings} if warnings else {}
            status = cast("Object", live.get("status") or {})
            return {
                **live,
                "status": {**status, "observedGeneration": generation, "typeChecking": found},
            }

        write = write_of(self._hub, self._policies, manager=_MANAGER, subresource="status")
        await edit_own(self._hub, self._policies, key, checked, write=write)


def type_warnings(policy: Object, catalog: tuple[Served, ...]) -> Iterator[Object]:
    """Yield an ExpressionWarning for every expression that does not fit the kinds it is about."""
    spec = cast("Object", policy.get("spec") or {})
    types = [(each, typed) for each in _named_kinds(spec, catalog) if (typed := _type_of(each))]
    params = _find_params(spec, catalog)
    for index, validation in enumerate(cast("list[Object]", spec.get("validations") or [])):
        for field in ("expression", "messageExpression"):
            text = str(validation.get(field) or "")
            if not text:
                continue
            found: list[str] = []
            for served, typed in types:
                declared = Declarations(
                    has_params=params is not None, object_type=typed, params_type=params or DYN
                )
                for each in cast("list[Object]", spec.get("variables") or []):
                    declared.add_variable(str(each.get("name")), str(each.get("expression")))
                fault = declared.compile(text, ANYTHING).fault
                if fault:
                    kind = served.info.group_version_kind
                    shown = fault.removeprefix("compilation failed: ")
                    found.append(f"{kind.api_version}, Kind={kind.kind}: {shown}\n")
            if found:
                yield {
                    "fieldRef": f"spec.validations[{index}].{field}",
                    "warning": "\n".join(found),
                }


def _named_kinds(spec: Object, catalog: tuple[Served, ...]) -> list[Served]:
    """Return the resources that the rules of a policy name, without those behind a wildcard."""
    rules: Any = find_at(spec, "matchConstraints", "resourceRules") or []
    by_name = {each.info.group_version_resource: each for each in catalog}
    found: dict[str, Served] = {}
    for rule in cast("list[Object]", rules):
        names = [
            sorted(set(cast("list[str]", rule.get(field) or [])))
            for field in ("apiGroups", "apiVersions", "resources")
        ]
        if any("*" in listed for listed in names[:2]):
            continue
        for group, version, resource in product(*names):
            for key, served in by_name.items():
                if (key.group, key.version, key.resource) == (group, version, resource):
                    kind = served.info.group_version_kind
                    found[f"{kind.group}/{kind.version}/{kind.kind}"] = served
    return [found[key] for key in sorted(found)][:_MOST_TYPES]


def _find_params(spec: Object, catalog: tuple[Served, ...]) -> Type | None:
    kind = cast("Object | None", spec.get("paramKind"))
    if kind is None:
        return None
    version = parse_api_version(str(kind.get("apiVersion")))
    for served in catalog:
        if served.info.group_version == version and served.info.kind == kind.get("kind"):
            return _type_of(served)
    return None


def _type_of(served: Served) -> Type | None:
    """Return the type of a kind's objects, with all of their metadata."""
    typed = type_of(served.rules.schema, is_resource=True, name=served.info.kind)
    metadata = type_of(OBJECT_META, is_resource=False, name="ObjectMeta")
    if typed is None or typed.fields is None or metadata is None:
        return None
    return Type(typed.name, fields={**typed.fields, "metadata": Field("metadata", metadata)})
