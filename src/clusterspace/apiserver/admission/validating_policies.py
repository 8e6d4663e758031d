"""ValidatingAdmissionPolicy: expressions that a request must satisfy.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

import msgspec

from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.admission.configurations import Followed
from clusterspace.apiserver.admission.matching import concerns_no_policy
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
from clusterspace.apiserver.state import EVERY_OPERATION, Admission, HubState, Operation, Plugin
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
from clusterspace.kube.cel.requests import Evaluation, EvaluationError, Expression, OutOfBudget
from clusterspace.kube.objects import Object

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
            raise _refusal(admission, denials[0])

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

                found, said = await admission.run(judge)
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
        if not conditions_hold(policy.conditions, values):
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


def _refusal(admission: Admission, denial: _Denial) -> ApiError:
    # The answer to a delete of many names none of them, as Kubernetes' does.
    info, name, message = admission.served.info, admission.name or "Unknown", denial.shown
    details = Details(name, info.group, info.plural, causes=(Cause("", message, ""),))
    kind = _REFUSALS.get(denial.reason, Invalid)
    return kind(f"{info.group_resource} {quoted(name)} is forbidden: {message}", details)
