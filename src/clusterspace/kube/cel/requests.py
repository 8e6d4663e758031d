"""Expressions about requests, as admission policies and match conditions have them.

    object, oldObject    the object and what it replaces; null where there is none
    request              who asks what of which resource
    namespaceObject      the namespace of a namespaced object
    params               the parameters of a binding
    authorizer           answers what the caller may do; `authorizer.requestResource` about this
    variables            expressions with a name, each evaluated when it is first looked at

What an expression may cost is bounded twice, by itself and together with its policy's others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from clusterspace.kube.cel.compiler import (
    OBJECT_TYPE,
    PATCH_TYPE,
    VARIABLES_TYPE,
    Program,
    compile_expression,
)
from clusterspace.kube.cel.libraries.authorization import AUTHORIZER, RESOURCE_CHECK
from clusterspace.kube.cel.syntax import CompileFailed
from clusterspace.kube.cel.types import (
    BOOL,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    Field,
    Type,
    list_of,
    map_of,
)
from clusterspace.kube.cel.values import BudgetExceeded, EvaluationFailed, Meter

OBJECT: Final = "object"
OLD_OBJECT: Final = "oldObject"
REQUEST: Final = "request"
PARAMS: Final = "params"
NAMESPACE: Final = "namespaceObject"
AUTHORIZER_NAME: Final = "authorizer"
REQUEST_RESOURCE: Final = "authorizer.requestResource"
VARIABLES: Final = "variables"

EXPRESSION_BUDGET: Final = 300_000
"""Steps that one expression may take: a fraction of a second."""

POLICY_BUDGET: Final = 1_500_000
"""Steps that the validations of a policy may take together."""

CONDITIONS_BUDGET: Final = 500_000
"""Steps that match conditions may take together."""

_OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


def _object_type(type_name: str, /, **fields: Type) -> Type:
    return Type(type_name, fields={each: Field(each, type_) for each, type_ in fields.items()})


_TEXTS: Final = list_of(STRING)
_KIND: Final = _object_type(
    "kubernetes.GroupVersionKind", group=STRING, version=STRING, kind=STRING
)
_RESOURCE: Final = _object_type(
    "kubernetes.GroupVersionResource", group=STRING, version=STRING, resource=STRING
)
USER_TYPE: Final = _object_type(
    "kubernetes.UserInfo",
    username=STRING,
    uid=STRING,
    groups=_TEXTS,
    extra=map_of(STRING, _TEXTS),
)
REQUEST_TYPE: Final = _object_type(
    "kubernetes.AdmissionRequest",
    kind=_KIND,
    resource=_RESOURCE,
    subResource=STRING,
    requestKind=_KIND,
    requestResource=_RESOURCE,
    requestSubResource=STRING,
    name=STRING,
    namespace=STRING,
    operation=STRING,
    userInfo=USER_TYPE,
    dryRun=BOOL,
    options=DYN,
)
_LABELS: Final = map_of(STRING, STRING)
NAMESPACE_TYPE: Final = _object_type(
    "kubernetes.Namespace",
    metadata=_object_type(
        "kubernetes.NamespaceMetadata",
        name=STRING,
        generateName=STRING,
        namespace=STRING,
        labels=_LABELS,
        annotations=_LABELS,
        UID=STRING,
        creationTimestamp=TIMESTAMP,
        deletionGracePeriodSeconds=INT,
        deletionTimestamp=TIMESTAMP,
        generation=INT,
        resourceVersion=STRING,
        finalizers=_TEXTS,
    ),
    spec=_object_type("kubernetes.NamespaceSpec", finalizers=_TEXTS),
    status=_object_type(
        "kubernetes.NamespaceStatus",
        conditions=list_of(
            _object_type(
                "kubernetes.NamespaceCondition",
                status=STRING,
                type=STRING,
                lastTransitionTime=TIMESTAMP,
                message=STRING,
                reason=STRING,
            )
        ),
        phase=STRING,
    ),
)

TRUTH: Final = (BOOL,)
TEXT: Final = (STRING,)
TEXT_OR_NULL: Final = (STRING, NULL)
ANYTHING: Final[tuple[Type, ...]] = ()
CONFIGURATION: Final = (Type(OBJECT_TYPE),)
PATCHES: Final = (list_of(Type(PATCH_TYPE)),)


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression with its program; `fault` says why it has none."""

    text: str
    program: Program | None = None
    fault: str = ""


class Declarations:
    """The variables of a policy's expressions, and the named ones among them as they are added."""

    def __init__(
        self,
        *,
        has_params: bool,
        has_variables: bool = True,
        object_type: Type = DYN,
        params_type: Type = DYN,
    ) -> None:
        self._types = {
            OBJECT: object_type,
            OLD_OBJECT: object_type,
            NAMESPACE: NAMESPACE_TYPE,
            REQUEST: REQUEST_TYPE,
        }
        if has_params:
            self._types[PARAMS] = params_type
        self._fields: dict[str, Field] = {}
        self._has_variables = has_variables
        self.variables: dict[str, Expression] = {}

    def compile(
        self, text: str, results: tuple[Type, ...], *, has_authorizer: bool = True
    ) -> Expression:
        """Compile an expression that must give one of these types; any type when there are none."""
        types = dict(self._types)
        if has_authorizer:
            types |= {AUTHORIZER_NAME: AUTHORIZER, REQUEST_RESOURCE: RESOURCE_CHECK}
        if self._has_variables:
            types[VARIABLES] = Type(VARIABLES_TYPE, fields=dict(self._fields))
        try:
            is_patch = results in (CONFIGURATION, PATCHES)
            program = compile_expression(text, types, has_patch_types=is_patch)
        except CompileFailed as failed:
            return Expression(text, fault=f"compilation failed: {failed}")
        if results and program.type not in results:
            names = [_name_of(each) for each in results]
            wanted = names[0] if len(names) == 1 else f"one of [{' '.join(names)}]"
            given = _name_of(program.type)
            return Expression(text, fault=f"must evaluate to {wanted} but got {given}")
        return Expression(text, program)

    def add_variable(self, name: str, text: str) -> Expression:
        """Compile a variable; expressions compiled from now on may look at it."""
        compiled = self.compile(text, ANYTHING)
        type_ = DYN if compiled.program is None else compiled.program.type
        self._fields[name] = Field(name, type_)
        self.variables[name] = compiled
        return compiled


def _name_of(given: Type) -> str:
    return "null_type" if given == NULL else str(given)


class EvaluationError(Exception):
    """An expression has no value; the message names it."""


class OutOfBudget(Exception):
    """The expressions of a policy have cost more than they may; no further one is evaluated."""


@dataclass(slots=True)
class Evaluation:
    """One evaluation of a policy's expressions about one request."""

    values: Mapping[str, Any]
    variables: Mapping[str, Expression] = field(default_factory=dict[str, Expression])
    budget: int = POLICY_BUDGET
    _lazy: "_LazyVariables | None" = None

    def evaluate(self, expression: Expression) -> Any:
        """Return its value; EvaluationError when it has none, OutOfBudget when that is spent."""
        program = expression.program
        if program is None:
            raise EvaluationError(f"compilation error: {expression.fault}")
        meter = Meter(EXPRESSION_BUDGET)
        try:
            meter.spend(1)
            return program.evaluate(self._activation(program), meter)
        except BudgetExceeded as exceeded:
            raise EvaluationError(_resulted(expression, exceeded)) from exceeded
        except EvaluationFailed as failed:
            raise EvaluationError(_resulted(expression, failed)) from failed
        finally:
            self.budget -= EXPRESSION_BUDGET - max(0, meter.left)
            if self.budget < 0:
                raise OutOfBudget(_OUT_OF_BUDGET)

    def _activation(self, program: Program) -> dict[str, Any]:
        given = {name: self.values[name] for name in program.slots if name in self.values}
        if VARIABLES in program.slots:
            if self._lazy is None:
                self._lazy = _LazyVariables(self)
            given[VARIABLES] = self._lazy
        return given

    def value_of(self, name: str, meter: Meter) -> Any:
        """Return the value of a variable, at the cost of the expression that looks at it."""
        expression = self.variables[name]
        if expression.program is None:
            why = f'composited variable "{name}" fails to compile: {expression.fault}'
            raise EvaluationFailed(why)
        try:
            return expression.program.evaluate(self._activation(expression.program), meter)
        except EvaluationFailed as failed:
            why = f'composited variable "{name}" fails to evaluate: {failed}'
            raise EvaluationFailed(why) from failed


class _LazyVariables:
    """The variables of a policy: each is evaluated once, when it is first looked at."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._known: dict[str, Callable[[], Any]] = {}

    def get(self, name: str, meter: Meter) -> Any:
        """Return the value of a variable; fails again where it has failed."""
        known = self._known.get(name)
        if known is None:
            try:
                value = self._evaluation.value_of(name, meter)
            except EvaluationFailed as failed:
                known = _failing(failed)
            else:
                known = _giving(value)
            self._known[name] = known
        return known()


def _giving(value: Any) -> Callable[[], Any]:
    return lambda: value


def _failing(failed: EvaluationFailed) -> Callable[[], Any]:
    def fail() -> Any:
        raise failed

    return fail


def _resulted(expression: Expression, error: Exception) -> str:
    return f"expression '{expression.text}' resulted in error: {error}"
