"""The request, its resource and its representation as one value; bodies read and checked."""

from dataclasses import dataclass
from typing import Any, cast

from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.http.bodies import Body, read_body
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.negotiation import Representation
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.state import HubState
from clusterspace.errors import ApiError, BadRequest, Cause, RequestEntityTooLarge
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, metadata_of, name_of
from clusterspace.kube.resources import parse_api_version

_WARNING_LIMIT = 25
"""Naming more unknown fields than anybody reads helps nobody."""


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """One resource request, ready for its verb."""

    hub: HubState
    context: RequestContext
    served: Served
    representation: Representation

    @property
    def info(self) -> RequestInfo:
        """What the URL says."""
        return self.context.info

    @property
    def key(self) -> str:
        """The storage key of the object the URL names."""
        return self.served.key(self.info.namespace, self.info.name)

    async def read_body(self) -> Body:
        """Read and decode the body."""
        raw = await self.read_raw_body()
        content_type, kind = self.context.header("content-type"), self.served.info.kind
        return await self.context.run(lambda: read_body(raw, content_type, expected_kind=kind))

    async def read_raw_body(self) -> bytes:
        """Read the body; one that makes a large object is waited with until others are done."""
        raw = await self.context.read_body()
        await self.context.take_turn()
        return raw

    async def read_small_body(self, kind: str) -> Body:
        """Read a body that says what to do and is not kept, such as options or a question.

        Nobody writes those by the thousand fields, so one like that is refused, and the others
        may be worked on without a thought of how long it takes.
        """
        raw = await self.context.read_body()
        if self.context.is_heavy:
            raise RequestEntityTooLarge(f"Request entity too large: {kind} has too many parts")
        return read_body(raw, self.context.header("content-type"), expected_kind=kind)

    def not_found(self) -> ApiError:
        """Return the refusal for an object that is not there."""
        return statuses.not_found(self.served.info.group_resource, self.info.name)


async def read_incoming(
    ask: ResourceRequest, field_validation: str, *, is_kept: bool = True
) -> Object:
    """Read a body that must be an object of the resource's kind, in its normal form."""
    kind = ask.served.info.kind
    body = await (ask.read_body() if is_kept else ask.read_small_body(kind))
    checked = require_kind(body.value, ask.served)
    reading = await ask.context.run(lambda: ask.served.rules.read(checked))
    complain(ask, reading.unknown_fields, body.duplicates, field_validation)
    return reading.kube_object


def require_kind(value: Any, served: Served) -> Object:
    """Return the body as an object of the kind the URL stands for, or refuse it."""
    info = served.info
    if not isinstance(value, dict):
        raise _wrong(served, "the object provided is unrecognized")
    kube_object = cast("Object", value)
    kind, api_version = kube_object.get("kind"), kube_object.get("apiVersion")
    if kind is None and api_version is None and not served.is_custom:
        # Typed endpoints take a body that leaves both out, as kube-apiserver does.
        return {"kind": info.kind, "apiVersion": info.api_version, **kube_object}
    if not isinstance(kind, str) or not kind:
        raise BadRequest(_unrecognized(info.kind, "Object 'Kind' is missing"))
    if not isinstance(api_version, str) or not api_version:
        raise BadRequest(_unrecognized(info.kind, "Object 'apiVersion' is missing"))
    given = parse_api_version(api_version)
    if given.group != info.group:
        why = (
            f'no kind "{kind}" is registered for version "{given}" in scheme '
            '"pkg/api/legacyscheme/scheme.go:30"'
        )
        raise _mismatch(kind, info.version, info.kind, why)
    if kind != info.kind:
        package = info.group.partition(".")[0] or "core"
        why = f"converting ({given.version}.{kind}) to ({package}.{info.kind}): unknown conversion"
        raise _mismatch(kind, info.version, info.kind, why)
    if api_version != info.api_version:
        raise BadRequest(
            f"the API version in the data ({api_version}) does not match "
            f"the expected API version ({info.api_version})"
        )
    metadata = kube_object.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise _wrong(served, "metadata is not an object")
    return {**kube_object, "metadata": metadata or {}}


def _unrecognized(kind: str, why: str) -> str:
    return f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {why}"  # noqa: E501


def _mismatch(kind: str, version: str, expected: str, why: str) -> BadRequest:
    return BadRequest(f'{kind} in version "{version}" cannot be handled as a {expected}: {why}')


def _wrong(served: Served, why: str) -> BadRequest:
    kind, version = served.info.kind, served.info.version
    return BadRequest(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def complain(
    ask: ResourceRequest,
    unknown: tuple[str, ...],
    duplicates: tuple[str, ...],
    field_validation: str,
) -> None:
    """Warn of unknown and repeated fields, or refuse them, as the client asked."""
    if field_validation == "Ignore":
        return
    complaints = [f'unknown field "{path}"' for path in unknown[:_WARNING_LIMIT]]
    complaints += [f'duplicate field "{path}"' for path in duplicates[:_WARNING_LIMIT]]
    del complaints[_WARNING_LIMIT:]
    if not complaints:
        return
    if field_validation == "Strict":
        raise _wrong(ask.served, f"strict decoding error: {', '.join(complaints)}")
    for complaint in complaints:
        ask.context.warn(complaint)


def place(ask: ResourceRequest, kube_object: Object) -> Object:
    """Check the namespace against the URL and set it."""
    metadata = metadata_of(kube_object)
    given = metadata.get("namespace") or ""
    expected = ask.info.namespace if ask.served.info.namespaced else ""
    if given and given != expected:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if not expected:
        return {**kube_object, "metadata": {k: v for k, v in metadata.items() if k != "namespace"}}
    return {**kube_object, "metadata": {**metadata, "namespace": ask.info.namespace}}


def require_name(ask: ResourceRequest, kube_object: Object) -> None:
    """Refuse a body whose name is not the URL's."""
    given = metadata_of(kube_object).get("name") or ""
    if given and given != ask.info.name:
        raise BadRequest(
            f"the name of the object ({given}) does not match the name on the URL ({ask.info.name})"
        )


def refuse(ask: ResourceRequest, kube_object: Object, found: tuple[Cause, ...]) -> None:
    """Raise Invalid with every cause, if there are any."""
    if found:
        raise statuses.invalid(ask.served.info.group_kind, name_of(kube_object), found)
