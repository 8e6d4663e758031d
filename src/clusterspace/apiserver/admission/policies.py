"""What validating and mutating policies share: bindings, parameters, conditions, the evaluation.

    policy ─ is it about this? ─ its bindings ─ are they? ─ their parameters ─ evaluated for each

A policy without a binding does nothing. A binding without parameters has it evaluated once, one
with a selector as many times as there are objects selected.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.access.authorizer import HubAuthorizer
from clusterspace.apiserver.admission.matching import ResourceMatcher
from clusterspace.apiserver.admission.reviewed import (
    Reviewed,
    authorizer_of,
    resource_check_of,
)
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.kube.cel import requests
from clusterspace.kube.cel.requests import (
    CONDITIONS_BUDGET,
    POLICY_BUDGET,
    Declarations,
    Evaluation,
    EvaluationError,
    Expression,
    OutOfBudget,
)
from clusterspace.kube.objects import Object, find_at, metadata_of, name_of
from clusterspace.kube.resources import parse_api_version
from clusterspace.kube.selectors import LabelSelector, label_selector_of

_SHOWN_METADATA = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
)


@dataclass(frozen=True, slots=True)
class Condition:
    """An entry of `matchConditions`."""

    name: str
    expression: Expression


def read_conditions(raw: Any, *, has_params: bool) -> tuple[Condition, ...]:
    """Compile match conditions, which see no variables."""
    declared = Declarations(has_params=has_params, has_variables=False)
    return tuple(
        Condition(
            str(each.get("name") or ""),
            declared.compile(str(each.get("expression") or "").strip(), requests.TRUTH),
        )
        for each in cast("list[Object]", raw or [])
    )


class ConditionsFailed(Exception):
    """Match conditions have no value, and none of them is false."""


Result = TypeVar("Result")

LONG_COST: Final = 2_000
"""What is evaluated in the event loop's own time may cost so much: about two milliseconds."""


class Effort:
    """Whether evaluating some expressions takes longer than the event loop should wait for.

    The budget allows for a second of work, about an object however small. What nobody has evaluated
    yet may take that long; what once did may do so again for whoever knows how.
    """

    __slots__ = ("_is_known", "_took_long")

    def __init__(self) -> None:
        self._is_known = self._took_long = False

    @property
    def is_long(self) -> bool:
        """Whether it may take long, for all that is known."""
        return self._took_long or not self._is_known

    def note(self, evaluation: Evaluation, budget: int = POLICY_BUDGET) -> None:
        """Take note of what an evaluation has cost; in whichever thread that was."""
        if budget - evaluation.budget > LONG_COST:
            self._took_long = True

    def finish(self) -> None:
        """Take note that all there is to evaluate was evaluated: now it is known."""
        self._is_known = True

    async def run(self, admission: Admission, work: Callable[[], Result]) -> Result:
        """Evaluate where it belongs: at once, or beside the event loop in turns by user."""
        if self.is_long:
            return await off_loop(admission.user.name, work)
        return await admission.run(work)


def conditions_hold(
    conditions: Sequence[Condition], values: Mapping[str, Any], effort: Effort
) -> bool:
    """Whether all conditions hold; one that is false makes up for those that have no value."""
    evaluation = Evaluation(values, budget=CONDITIONS_BUDGET)
    try:
        return _conditions_hold(conditions, evaluation)
    finally:
        effort.note(evaluation, CONDITIONS_BUDGET)


def _conditions_hold(conditions: Sequence[Condition], evaluation: Evaluation) -> bool:
    failures: list[str] = []
    for condition in conditions:
        try:
            if evaluation.evaluate(condition.expression) is False:
                return False
        except EvaluationError as failed:
            failures.append(str(failed))
        except OutOfBudget as spent:
            raise ConditionsFailed(str(spent)) from spent
    if failures:
        shown = failures[0] if len(failures) == 1 else f"[{', '.join(dict.fromkeys(failures))}]"
        raise ConditionsFailed(shown)
    return True


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding as it was read."""

    name: str
    policy: str
    matcher: ResourceMatcher | None
    param_ref: Object | None
    selector: LabelSelector | None
    actions: tuple[str, ...]

    @classmethod
    def read(cls, raw: Object) -> "Binding":
        """Read a binding."""
        spec = cast("Object", raw.get("spec") or {})
        matched = spec.get("matchResources")
        reference = cast("Object | None", spec.get("paramRef"))
        selected = None if reference is None else reference.get("selector")
        return cls(
            name_of(raw),
            str(spec.get("policyName") or ""),
            None if matched is None else ResourceMatcher.read(matched, is_open=True),
            reference,
            None if selected is None else label_selector_of(selected),
            tuple(spec.get("validationActions") or ()),
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy with its expressions compiled; its kinds add what they evaluate."""

    name: str
    matcher: ResourceMatcher
    conditions: tuple[Condition, ...]
    declared: Declarations
    param_kind: Object | None
    ignores_failure: bool
    effort: Effort = field(default_factory=Effort, compare=False)

    @classmethod
    def read(cls, raw: Object) -> "Policy":
        """Read what every policy has."""
        spec = cast("Object", raw.get("spec") or {})
        has_params = spec.get("paramKind") is not None
        declared = Declarations(has_params=has_params)
        for each in cast("list[Object]", spec.get("variables") or []):
            declared.add_variable(str(each.get("name")), str(each.get("expression")))
        return cls(
            name_of(raw),
            ResourceMatcher.read(spec.get("matchConstraints") or {}, is_open=True),
            read_conditions(spec.get("matchConditions"), has_params=has_params),
            declared,
            spec.get("paramKind"),
            spec.get("failurePolicy") == "Ignore",
        )


Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Hook(Generic[Kind]):
    """A policy and the bindings that put it in force."""

    policy: Policy
    kind: Kind
    bindings: tuple[Binding, ...]


class PolicyReader(Generic[Kind]):
    """Makes hooks of policies and bindings; compiles a policy once in each of its generations."""

    def __init__(self, read: Callable[[Object, Policy], Kind]) -> None:
        self._read = read
        self._known: dict[tuple[str, int], tuple[Policy, Kind]] = {}

    def __call__(self, found: Sequence[Sequence[Object]]) -> tuple[Hook[Kind], ...]:
        """Return the hooks in force, in the order of their names."""
        policies, bindings = found
        read = [Binding.read(each) for each in bindings]
        known: dict[tuple[str, int], tuple[Policy, Kind]] = {}
        hooks: list[Hook[Kind]] = []
        for raw in policies:
            key = (str(metadata_of(raw).get("uid")), int(metadata_of(raw).get("generation") or 0))
            compiled = self._known.get(key)
            if compiled is None:
                policy = Policy.read(raw)
                compiled = policy, self._read(raw, policy)
            known[key] = compiled
            own = tuple(each for each in read if each.policy == name_of(raw))
            if own:
                hooks.append(Hook(*compiled, own))
        self._known = known
        return tuple(hooks)


class Misconfigured(Exception):
    """A binding cannot be used as it is: the failure policy decides."""


class PolicyMisconfigured(Misconfigured):
    """A policy cannot be used as it is, whatever binds it."""


async def params_of(
    hub: HubState, policy: Policy, binding: Binding, admission: Admission
) -> list[Object | None]:
    """Return the parameters of a binding for a request; `[None]` when it has none.

    None at all when they are missing and the binding says to let that pass.
    """
    kind, reference = policy.param_kind, binding.param_ref
    if kind is None or reference is None:
        return [None]
    served = _find_param_kind(hub, kind)
    if served is None:
        raise PolicyMisconfigured(
            "failed to find resource referenced by paramKind: "
            f"'{kind.get('apiVersion')}, Kind={kind.get('kind')}'"
        )
    given = str(reference.get("namespace") or "")
    if served.info.namespaced:
        namespace = given or admission.namespace
        if not namespace:
            raise Misconfigured(
                "cannot use namespaced paramRef in policy binding that matches "
                "cluster-scoped resources"
            )
    elif given:
        raise Misconfigured(
            "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
        )
    else:
        namespace = ""
    name = str(reference.get("name") or "")
    if name:
        entry = await hub.store.get(served.key(namespace, name))
        entries = [] if entry is None else [entry]
    else:
        page = await hub.store.range(served.prefix(namespace))
        selector = binding.selector
        entries = [
            each
            for each in page.items
            if selector is None or selector.matches(forms.labels_in(each))
        ]
    found: list[Object | None] = [
        forms.decode_stored(each, served.form) for each in await served.converted(entries)
    ]
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        raise Misconfigured(
            "no params found for policy binding with `Deny` parameterNotFoundAction"
        )
    return found


def _find_param_kind(hub: HubState, kind: Object) -> Served | None:
    version = parse_api_version(str(kind.get("apiVersion")))
    return next(
        (
            each
            for each in hub.catalog.all()
            if each.info.group_version == version and each.info.kind == kind.get("kind")
        ),
        None,
    )


async def namespace_object(hub: HubState, admission: Admission) -> Object | None:
    """Return the namespace of a namespaced object as expressions see it."""
    if not admission.served.info.namespaced or not admission.namespace:
        return None
    served = hub.catalog.get_storage("", "namespaces")
    entry = await hub.store.get(served.key("", admission.namespace))
    if entry is None:
        return None
    found = forms.decode_stored(entry, served.form)
    metadata = {k: v for k, v in metadata_of(found).items() if k in _SHOWN_METADATA}
    return {
        "metadata": metadata,
        "spec": find_at(found, "spec") or {},
        "status": find_at(found, "status") or {},
    }


def values_of(
    authorizer: HubAuthorizer,
    admission: Admission,
    seen: Reviewed,
    params: Object | None = None,
    namespace: Object | None = None,
) -> dict[str, Any]:
    """Return what the expressions of a policy see of a request."""
    checker = authorizer_of(authorizer, admission.user)
    return {
        requests.OBJECT: seen.new,
        requests.OLD_OBJECT: seen.old,
        requests.REQUEST: seen.request,
        requests.PARAMS: params,
        requests.NAMESPACE: namespace,
        requests.AUTHORIZER_NAME: checker,
        requests.REQUEST_RESOURCE: resource_check_of(checker, admission),
    }


def evaluation_of(
    policy: Policy, values: Mapping[str, Any], budget: int = POLICY_BUDGET
) -> Evaluation:
    """Return an evaluation of a policy's expressions, with the variables it declares."""
    return Evaluation(values, policy.declared.variables, budget)
