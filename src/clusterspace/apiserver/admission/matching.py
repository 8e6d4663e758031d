"""Policies and webhooks as the store has them, and which requests each is about.

They are read once, and again when one has changed. A policy is in force before its write is
answered: the store tells its subscribers of a commit before it tells the writer, and what it told
makes the next request read again. Nothing runs in the background, and a hub without such objects
pays for a look at a flag.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.state import Admission, HubState, Operation
from clusterspace.apiserver.store.interface import Event, Store, Subscription
from clusterspace.apiserver.writing import SELF
from clusterspace.errors import ApiError, StoreError
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, labels_of
from clusterspace.kube.resources import GroupResource
from clusterspace.kube.selectors import LabelSelector, label_selector_of

GROUP: Final = "admissionregistration.k8s.io"

Built = TypeVar("Built")

Build: TypeAlias = Callable[[Sequence[Sequence[Object]]], Built]
"""Makes of all objects, a sequence for each resource, what requests are judged by."""


class Followed(Generic[Built]):
    """What has been built of all objects of some resources in their present form."""

    def __init__(self, plurals: Sequence[str], build: Build[Built]) -> None:
        self._plurals = plurals
        self._build = build
        self._subscriptions: list[Subscription] = []
        self._store: Store | None = None
        self._changes = 0
        self._built_at = -1
        self._built: Built | None = None

    @property
    def current(self) -> Built | None:
        """What is in force; None when it must be read first."""
        return self._built if self._built_at == self._changes else None

    async def read(self, hub: HubState) -> Built:
        """Read what is in force now."""
        while True:
            if self._store is not hub.store or not self._subscriptions:
                self._subscribe(hub)
            # Counted before the read: a commit during one of the awaits below counts on, and what
            # was read is then read once more. Of two requests that read at the same time neither
            # can put what is older in the place of what is newer: only the last count is kept.
            at = self._changes
            found: list[list[Object]] = []
            for plural in self._plurals:
                try:
                    served = hub.catalog.get_storage(GROUP, plural)
                except KeyError:
                    found.append([])  # of a version that this server was not asked to serve
                    continue
                page = await hub.store.range(served.prefix())
                found.append([forms.decode_stored(entry, served.form) for entry in page.items])
            built = self._build(found)
            if at == self._changes:
                self._built, self._built_at = built, at
                return built

    def _subscribe(self, hub: HubState) -> None:
        for each in self._subscriptions:
            each.close()
        self._store = hub.store
        after = hub.store.current_revision
        self._subscriptions = [
            hub.store.subscribe(forms.collection_key(GROUP, plural), after=after, sink=self)
            for plural in self._plurals
        ]

    def receive(self, events: tuple[Event, ...]) -> None:
        """Take note that something has changed."""
        self._changes += 1

    def end(self, reason: StoreError) -> None:
        """Read and subscribe again, when somebody asks next."""
        self._changes += 1
        self._subscriptions = []


_ANY: Final = "*"
_NAMESPACES: Final = GroupResource("", "namespaces")

_POLICIES: Final = frozenset(
    {
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    }
)
_CONFIGURATIONS: Final = _POLICIES | {
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
}
"""No policy is asked about policies, and no webhook about either: a bad one can be taken away."""

_REVIEWS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
"""Groups of questions, which policies are not asked about: answering one may be what they need."""

_IN_PASSING: Final = frozenset({"binding"})
"""Subresources whose writes are admitted as what was posted, not as the change that follows."""


def concerns_no_policy(admission: Admission) -> bool:
    """Whether no policy is asked about a request."""
    info = admission.served.info
    is_policy = info.group == GROUP and info.plural in _POLICIES
    return is_policy or info.group in _REVIEWS or _is_our_own(admission)


def concerns_no_webhook(admission: Admission) -> bool:
    """Whether no webhook is called about a request."""
    info = admission.served.info
    return (info.group == GROUP and info.plural in _CONFIGURATIONS) or _is_our_own(admission)


def _is_our_own(admission: Admission) -> bool:
    """Whether the write is the hub's, or a step of a write that has been asked about.

    Nobody is asked about what the hub makes for itself: it starts, and a namespace gets what every
    namespace has, whatever policies say and however dead a webhook is.
    """
    is_in_passing = admission.subresource in _IN_PASSING
    return admission.user is SELF or (is_in_passing and admission.operation is Operation.UPDATE)


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `rules` or `resourceRules`."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    scope: str
    names: frozenset[str]

    @classmethod
    def read(cls, raw: Object) -> "Rule":
        """Read an entry."""

        def texts(name: str) -> frozenset[str]:
            return frozenset(cast("list[str]", raw.get(name) or []))

        parts = [each.partition("/") for each in cast("list[str]", raw.get("resources") or [])]
        return cls(
            texts("operations"),
            texts("apiGroups"),
            texts("apiVersions"),
            tuple((resource, subresource) for resource, _, subresource in parts),
            str(raw.get("scope") or _ANY),
            texts("resourceNames"),
        )

    def matches(self, admission: Admission, served: Served) -> bool:
        """Whether it is about a request, taken as one for this resource."""
        info, subresource = served.info, admission.subresource
        if not {_ANY, admission.operation.value} & self.operations:
            return False
        if not {_ANY, info.group} & self.groups or not {_ANY, info.version} & self.versions:
            return False
        if not any(
            resource in (_ANY, info.plural) and part in (_ANY, subresource)
            for resource, part in self.resources
        ):
            return False
        if self.scope != _ANY:
            is_namespaced = info.group_resource != _NAMESPACES and bool(admission.namespace)
            if is_namespaced != (self.scope == "Namespaced"):
                return False
        return not self.names or admission.name in self.names


@dataclass(frozen=True, slots=True)
class ResourceMatcher:
    """What `matchConstraints`, `matchResources` or the rules of a webhook say."""

    rules: Sequence[Rule]
    excluded: Sequence[Rule]
    is_exact: bool
    namespaces: LabelSelector
    objects: LabelSelector
    is_open: bool
    """Whether no rules mean everything, as for policies; for webhooks they mean nothing."""

    @classmethod
    def read(cls, raw: Object, rules: str = "resourceRules", *, is_open: bool) -> "ResourceMatcher":
        """Read one; the selectors have been checked when it was written."""

        def all_of(name: str) -> tuple[Rule, ...]:
            return tuple(Rule.read(each) for each in cast("list[Any]", raw.get(name) or []))

        return cls(
            all_of(rules),
            all_of("excludeResourceRules"),
            raw.get("matchPolicy") == "Exact",
            label_selector_of(raw.get("namespaceSelector")),
            label_selector_of(raw.get("objectSelector")),
            is_open,
        )

    async def match(self, hub: HubState, admission: Admission) -> Served | None:
        """Return the resource as which the request is meant; None when it is not.

        That may be another version of the one in the request, which policies see it in.
        """
        # The rules first: they decide without a look at anything else.
        if self._matching(self.excluded, hub, admission) is not None:
            return None
        matched = (
            admission.served
            if self.is_open and not self.rules
            else self._matching(self.rules, hub, admission)
        )
        if matched is None or not self._selects_object(admission):
            return None
        if self.namespaces.is_everything:
            return matched
        is_selected = self.namespaces.matches(await namespace_labels(hub, admission))
        return matched if is_selected or _is_outside(admission) else None

    def _matching(
        self, rules: Iterable[Rule], hub: HubState, admission: Admission
    ) -> Served | None:
        own = admission.served
        listed = tuple(rules)
        if any(rule.matches(admission, own) for rule in listed):
            return own
        if self.is_exact or not listed:
            return None
        for rule in listed:
            for other in equivalents_of(hub, own, admission.subresource):
                if rule.matches(admission, other):
                    return other
        return None

    def _selects_object(self, admission: Admission) -> bool:
        if self.objects.is_everything:
            return True
        if admission.operation is Operation.CONNECT:
            return False
        seen = [] if admission.operation is Operation.DELETE else [admission.new]
        if admission.old is not None:
            seen.append(admission.old)
        return any(self.objects.matches(labels_of(each)) for each in seen)


def equivalents_of(hub: HubState, served: Served, subresource: str) -> list[Served]:
    """Return the other resources in which the same objects are served."""
    return [
        each
        for each in hub.catalog.all()
        if each.storage == served.storage
        and each is not served
        and (not subresource or each.info.find_subresource(subresource) is not None)
    ]


def _is_outside(admission: Admission) -> bool:
    """Whether the object is in no namespace and is none: no selector of namespaces excludes it."""
    return not admission.namespace and admission.served.info.group_resource != _NAMESPACES


async def namespace_labels(hub: HubState, admission: Admission) -> dict[str, str]:
    """Return the labels of the namespace a request is in, or of the one it is about."""
    is_namespace = admission.served.info.group_resource == _NAMESPACES
    if is_namespace and not admission.subresource and admission.other is None:
        return dict(labels_of(admission.new))
    namespace = admission.namespace
    if not namespace:
        return {}
    served = hub.catalog.get_storage("", "namespaces")
    entry = await hub.store.get(served.key("", namespace))
    if entry is None:
        raise statuses.not_found(_NAMESPACES, namespace)
    return dict(forms.labels_in(entry))


def named_refusal(admission: Admission, why: str) -> ApiError:
    """Return the 403 about the object of a request."""
    return statuses.forbidden(admission.served.info.group_resource, admission.name, why)
