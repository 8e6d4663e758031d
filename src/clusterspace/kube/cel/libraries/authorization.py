"""Questions to the authorizer: `authorizer.group('apps').resource('deployments').check('create')`.

Who answers is given with the variable `authorizer`; without one no expression can ask.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from clusterspace.kube import names
from clusterspace.kube.cel.types import Library, Type
from clusterspace.kube.cel.values import EvaluationFailed, Meter, register_kind

LIBRARY: Final = Library()

AUTHORIZER: Final = Type("kubernetes.authorization.Authorizer")
RESOURCE_CHECK: Final = Type("kubernetes.authorization.ResourceCheck")

_CHECK_STEPS: Final = 100_000
"""A question may go far and cost much: an expression can ask two."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the authorizer said."""

    allowed: bool
    reason: str = ""


register_kind(Decision, "kubernetes.authorization.Decision")


@dataclass(frozen=True, slots=True)
class Question:
    """May somebody do this? About a path, or about a resource."""

    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    account: tuple[str, str] | None = None
    """The service account that is asked about, by namespace and name; None is who makes the
    request."""


Decide: TypeAlias = Callable[[Question, str], Decision]
"""Answers a question about a verb."""


@dataclass(frozen=True, slots=True)
class _Checker:
    decide: Decide
    question: Question = Question()

    def about(self, **changes: Any) -> Question:
        return replace(self.question, **changes)


class Authorizer(_Checker):
    """The variable `authorizer`."""

    __slots__ = ()


class PathCheck(_Checker):
    """A question about a path."""

    __slots__ = ()


class GroupCheck(_Checker):
    """A question about an API group, which needs a resource."""

    __slots__ = ()


class ResourceCheck(_Checker):
    """A question about a resource."""

    __slots__ = ()


for _kind in (Authorizer, PathCheck, GroupCheck, ResourceCheck):
    register_kind(_kind, f"kubernetes.authorization.{_kind.__name__}")


@LIBRARY.method(
    "kubernetes.authorization.Authorizer.path(string) -> kubernetes.authorization.PathCheck"
)
def _path(checker: Authorizer, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationFailed("path must not be empty")
    return PathCheck(checker.decide, checker.about(path=path))


@LIBRARY.method(
    "kubernetes.authorization.Authorizer.serviceAccount(string, string) "
    "-> kubernetes.authorization.Authorizer"
)
def _service_account(checker: Authorizer, namespace: str, name: str) -> Authorizer:
    problems = (*names.dns1123_subdomain_problems(name),)
    if problems:
        raise EvaluationFailed("Invalid service account name")
    if names.dns1123_label_problems(namespace):
        raise EvaluationFailed("Invalid service account namespace")
    return Authorizer(checker.decide, checker.about(account=(namespace, name)))


@LIBRARY.method(
    "kubernetes.authorization.GroupCheck.resource(string) -> kubernetes.authorization.ResourceCheck"
)
def _resource(checker: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationFailed("resource must not be empty")
    return ResourceCheck(checker.decide, checker.about(resource=resource))


def _narrowed(field: str) -> Callable[[Any, str], ResourceCheck]:
    return lambda checker, value: ResourceCheck(checker.decide, checker.about(**{field: value}))


_RESOURCE_CHECK: Final = "kubernetes.authorization.ResourceCheck"

LIBRARY.methods(
    {
        "kubernetes.authorization.Authorizer.group(string) "
        "-> kubernetes.authorization.GroupCheck": lambda checker, group: GroupCheck(
            checker.decide, checker.about(group=group)
        ),
        **{
            f"{_RESOURCE_CHECK}.{name}(string) -> {_RESOURCE_CHECK}": _narrowed(name)
            for name in ("subresource", "namespace", "name")
        },
        # Our authorizer goes by no selectors: a question with one is the question without.
        **{
            f"{_RESOURCE_CHECK}.{name}(string) -> {_RESOURCE_CHECK}": lambda checker, _: checker
            for name in ("fieldSelector", "labelSelector")
        },
        "kubernetes.authorization.Decision.allowed() -> bool": lambda said: said.allowed,
        "kubernetes.authorization.Decision.reason() -> string": lambda said: said.reason,
        "kubernetes.authorization.Decision.errored() -> bool": lambda _: False,
        "kubernetes.authorization.Decision.error() -> string": lambda _: "",
    }
)


@LIBRARY.method(
    "kubernetes.authorization.PathCheck.check(string) -> kubernetes.authorization.Decision",
    "kubernetes.authorization.ResourceCheck.check(string) -> kubernetes.authorization.Decision",
    metered=True,
)
def _check(meter: Meter, checker: PathCheck | ResourceCheck, verb: str) -> Decision:
    meter.spend(_CHECK_STEPS)
    return checker.decide(checker.question, verb)
