"""Query parameters and DeleteOptions, read and checked once; which objects selectors select."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import METADATA_FIELDS, Served
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.http.request_info import Query
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.store.interface import KeyValue
from clusterspace.errors import BadRequest, Cause
from clusterspace.kube import causes, statuses
from clusterspace.kube.objects import Object, labels_of, metadata_of
from clusterspace.kube.resources import GroupKind
from clusterspace.kube.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)
from clusterspace.kube.tables import IncludeObject

_META: Final = "meta.k8s.io"
_PROPAGATION: Final = ("Foreground", "Background", "Orphan")
_FIELD_VALIDATION: Final = ("Ignore", "Warn", "Strict")
_MANAGER_LENGTH: Final = 128
_LARGEST_VERSION: Final = 2**64 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)

_SHORT_SELECTOR: Final = 2_048
"""Characters that are parsed in the event loop's own time: up to a thousand terms, 20 ms."""

Decode: TypeAlias = Callable[[KeyValue, forms.Form], Object]
"""Returns a stored object; whoever asks many watchers about one decodes it once."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """CreateOptions, UpdateOptions and PatchOptions."""

    dry_run: bool
    field_validation: str
    field_manager: str
    force: bool = False
    given: tuple[tuple[str, str], ...] = ()
    """What the client said of manager and validation, for those who are shown its options."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """DeleteOptions, from query or body."""

    dry_run: bool = False
    propagation: str = ""
    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class ListOptions:
    """ListOptions, of a list or a watch."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    version_match: str = ""
    timeout_seconds: float | None = None
    allow_bookmarks: bool = False
    send_initial_events: bool | None = None
    include: IncludeObject = IncludeObject.METADATA


def read_write_options(
    query: Query, *, kind: str, user_agent: str, is_apply: bool = False
) -> WriteOptions:
    """Read CreateOptions, UpdateOptions or PatchOptions, whichever `kind` says."""
    found = _dry_run_causes(query)
    validation, manager = query.get("fieldValidation"), query.get("fieldManager")
    if validation and validation not in _FIELD_VALIDATION:
        supported = ("", *_FIELD_VALIDATION)
        found.append(causes.not_supported("fieldValidation", validation, supported))
    if len(manager) > _MANAGER_LENGTH:
        found.append(causes.too_long("fieldManager", _MANAGER_LENGTH))
    if not manager.isprintable():
        why = "should only contain printable characters"
        found.append(causes.invalid("fieldManager", manager, why))
    if is_apply and not manager:
        found.append(causes.required("fieldManager", "is required for apply patch"))
    force = query.get("force")
    if force and kind == "PatchOptions" and not is_apply:
        found.append(causes.forbidden("force", "may not be specified for non-apply patch"))
    _refuse(kind, found)
    return WriteOptions(
        dry_run=bool(query.get_all("dryRun")),
        field_validation=validation or "Warn",
        field_manager=manager or manager_from(user_agent),
        force=query.is_true("force"),
        given=tuple(
            (name, text)
            for name, text in (("fieldManager", manager), ("fieldValidation", validation))
            if text
        ),
    )


def manager_from(user_agent: str) -> str:
    """Name the manager after the program, as Kubernetes does: the agent up to its version."""
    return user_agent.partition("/")[0][:_MANAGER_LENGTH] or "unknown"


class _Preconditions(msgspec.Struct):
    uid: str | None = None
    resourceVersion: str | None = None  # noqa: N815 - Kubernetes' own spelling


class _DeleteBody(msgspec.Struct):
    """DeleteOptions as clients send them. What cannot be read is refused, never passed over."""

    kind: str = "DeleteOptions"
    gracePeriodSeconds: int | None = None  # noqa: N815 - Kubernetes' own spelling
    preconditions: _Preconditions | None = None
    orphanDependents: bool | None = None  # noqa: N815 - Kubernetes' own spelling
    propagationPolicy: str | None = None  # noqa: N815 - Kubernetes' own spelling
    dryRun: list[str] | None = None  # noqa: N815 - Kubernetes' own spelling


def read_delete_options(query: Query, body: Any) -> DeleteOptions:
    """Read DeleteOptions; the body wins where both speak."""
    try:
        given = msgspec.convert({} if body is None else body, _DeleteBody)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the DeleteOptions in the body cannot be read: {error}") from error
    if given.kind not in ("", "DeleteOptions"):
        raise BadRequest(f"a delete takes DeleteOptions in its body, not {given.kind[:64]!r}")
    propagation = given.propagationPolicy or query.get("propagationPolicy")
    found = list(_dry_run_causes(query, given.dryRun or []))
    if propagation and propagation not in _PROPAGATION:
        supported = (*_PROPAGATION, "nil")
        found.append(causes.not_supported("propagationPolicy", propagation, supported))
    if not propagation and (given.orphanDependents or query.is_true("orphanDependents")):
        propagation = "Orphan"
    _refuse("DeleteOptions", found)
    preconditions = given.preconditions or _Preconditions()
    grace = given.gracePeriodSeconds
    if grace is None and query.get("gracePeriodSeconds"):
        grace = _integer(query, "gracePeriodSeconds")
    return DeleteOptions(
        dry_run=bool(query.get_all("dryRun") or given.dryRun),
        propagation=propagation,
        grace_seconds=grace,
        uid=preconditions.uid or "",
        resource_version=preconditions.resourceVersion or "",
    )


def read_list_options(query: Query, *, is_watch: bool) -> ListOptions:
    """Read ListOptions and refuse the combinations Kubernetes refuses."""
    send_initial = query.get("sendInitialEvents")
    options = ListOptions(
        label_selector=query.get("labelSelector"),
        field_selector=query.get("fieldSelector"),
        limit=_integer(query, "limit"),
        continue_token=query.get("continue"),
        resource_version=query.get("resourceVersion"),
        version_match=query.get("resourceVersionMatch"),
        timeout_seconds=_integer(query, "timeoutSeconds") or None,
        allow_bookmarks=query.is_true("allowWatchBookmarks"),
        send_initial_events=query.is_true("sendInitialEvents") if send_initial else None,
        include=read_include(query.get("includeObject")),
    )
    found = _watch_causes(options) if is_watch else _list_causes(options)
    _refuse("ListOptions", found)
    return options


def read_include(text: str) -> IncludeObject:
    """Read `includeObject`; leaving it out means metadata."""
    try:
        return IncludeObject(text or IncludeObject.METADATA.value)
    except ValueError as error:
        known = ", ".join(each.value for each in IncludeObject)
        raise BadRequest(f"includeObject must be one of {known}, not {text!r}") from error


def _list_causes(options: ListOptions) -> list[Cause]:
    found: list[Cause] = []
    field, match, version = "resourceVersionMatch", options.version_match, options.resource_version
    if match and not version:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        found.append(causes.forbidden(field, why))
    if match and options.continue_token:
        why = "resourceVersionMatch is forbidden when continue is provided"
        found.append(causes.forbidden(field, why))
    if match not in ("", "Exact", "NotOlderThan"):
        found.append(causes.not_supported(field, match, ("Exact", "NotOlderThan", "")))
    if match == "Exact" and version == "0":
        why = 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
        found.append(causes.forbidden(field, why))
    if options.send_initial_events is not None:
        why = "sendInitialEvents is forbidden for list"
        found.append(causes.forbidden("sendInitialEvents", why))
    return found


def _watch_causes(options: ListOptions) -> list[Cause]:
    found: list[Cause] = []
    field, match = "resourceVersionMatch", options.version_match
    if options.send_initial_events is not None:
        if match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            found.append(causes.forbidden(field, why))
        if match not in ("", "NotOlderThan"):
            found.append(causes.not_supported(field, match, ("NotOlderThan",)))
        if options.continue_token:
            why = "resourceVersionMatch is forbidden when continue is provided"
            found.append(causes.forbidden(field, why))
    elif match:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        found.append(causes.forbidden(field, why))
    return found


def _integer(query: Query, name: str) -> int:
    text = query.get(name)
    if not text:
        return 0
    if not _INTEGER.fullmatch(text):
        why = f"strconv.ParseInt: parsing {statuses.quoted(text[:64])}: invalid syntax"
        raise BadRequest(why)
    return max(0, int(text))


def _dry_run_causes(query: Query, given: list[str] | None = None) -> list[Cause]:
    values = [*query.get_all("dryRun"), *(given or [])]
    if all(value == "All" for value in values):
        return []
    shown = ",".join(statuses.quoted(value) for value in values)
    return [
        Cause(
            "FieldValueNotSupported",
            f'Unsupported value: [{shown}]: supported values: "All"',
            "dryRun",
        )
    ]


def _refuse(kind: str, found: list[Cause]) -> None:
    if found:
        raise statuses.invalid(GroupKind(_META, kind), "", found)


def version_problem(text: str) -> str:
    """Return why a text is no resourceVersion, in Kubernetes' words; empty when it is one."""
    shown = statuses.quoted(text[:64])
    if not text.isascii() or not text.isdigit():
        return f"strconv.ParseUint: parsing {shown}: invalid syntax"
    if len(text) > len(str(_LARGEST_VERSION)) or int(text) > _LARGEST_VERSION:
        return f"strconv.ParseUint: parsing {shown}: value out of range"
    return ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Label and field selectors of one request, ready to be asked many times."""

    served: Served
    labels: LabelSelector
    fields: FieldSelector

    @property
    def is_everything(self) -> bool:
        """Whether nothing is filtered out."""
        return self.labels.is_everything and self.fields.is_everything

    @property
    def only_name(self) -> str | None:
        """The one name that can match, if the field selector pins it."""
        return self.fields.requires_exact("metadata.name")

    def matches_entry(self, entry: KeyValue, decode: Decode = forms.decode_stored) -> bool:
        """Whether a stored object is selected, decoding as little as possible."""
        if self.is_everything:
            return True
        only = self.only_name
        if only is not None and forms.name_in(entry.key) != only:
            return False
        fields = self.fields.fields
        if fields and (only is None or fields != frozenset({"metadata.name"})):
            return self.matches(decode(entry, self.served.form))
        return self.labels.is_everything or self.labels.matches(forms.labels_in(entry))

    def matching(self, entries: Sequence[KeyValue]) -> list[KeyValue]:
        """Return the stored objects that are selected."""
        return [entry for entry in entries if self.matches_entry(entry)]

    def matches(self, kube_object: Object) -> bool:
        """Whether an object is selected."""
        if not self.labels.matches(labels_of(kube_object)):
            return False
        if self.fields.is_everything:
            return True
        metadata = metadata_of(kube_object)
        values = {
            "metadata.name": str(metadata.get("name") or ""),
            "metadata.namespace": str(metadata.get("namespace") or ""),
        }
        for name in self.fields.fields - set(METADATA_FIELDS):
            values[name] = self.served.fields[name](kube_object)
        return self.fields.matches(values)


async def select_for(user: User, served: Served, options: ListOptions) -> Selection:
    """Parse the selectors of a request; a long one off the event loop."""
    if len(options.label_selector) + len(options.field_selector) > _SHORT_SELECTOR:
        return await off_loop(user.name, lambda: select(served, options))
    return select(served, options)


def select(served: Served, options: ListOptions) -> Selection:
    """Parse the selectors of a request; MalformedSelector or BadRequest when they make no sense."""
    fields = parse_field_selector(options.field_selector)
    for name in sorted(fields.fields):
        problem = served.refuse_field(name)
        if problem:
            raise BadRequest(problem)
    return Selection(served, parse_label_selector(options.label_selector), fields)
