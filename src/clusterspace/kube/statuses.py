"""The v1 Status body, to and from our errors, and Kubernetes' own words for each refusal.

The constructors below return errors for the caller to raise. Their texts and the shape of their
details are those a kube-apiserver answers with, to the letter: clients match on them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from clusterspace import errors
from clusterspace.errors import ApiError, Cause, Details
from clusterspace.kube import plain_text
from clusterspace.kube.causes import MOST, first
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupKind, GroupResource

Noun: TypeAlias = GroupResource | GroupKind
"""What a refusal is about; Kubernetes names some by resource and some by kind."""

MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
WATCH_TOO_OLD: Final = "The resourceVersion for the provided watch is too old."
LIST_TOO_OLD: Final = "The resourceVersion for the provided list is too old."
CONTINUE_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter."
)

# The first class of a code is the one for a Status that gives a code and no reason we know.
_BY_REASON: Final[dict[str, type[ApiError]]] = {
    each.reason: each
    for each in (
        errors.BadRequest,
        errors.Unauthorized,
        errors.Forbidden,
        errors.QuotaExceeded,
        errors.NotFound,
        errors.MethodNotAllowed,
        errors.NotAcceptable,
        errors.Conflict,
        errors.AlreadyExists,
        errors.Expired,
        errors.RequestEntityTooLarge,
        errors.UnsupportedMediaType,
        errors.Invalid,
        errors.TooManyRequests,
        errors.InternalError,
        errors.ServiceUnavailable,
        errors.DeadlineExceeded,
    )
}
_BY_CODE: Final = {each.code: each for each in reversed(_BY_REASON.values())}

_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"
_NO_REASON: Final = ("", ApiError.reason)


def status_of(error: ApiError) -> Object:
    """Return the Status body of an error."""
    body = {**_STATUS_HEAD, "status": "Failure", "message": error.message}
    if error.reason not in _NO_REASON:
        body["reason"] = error.reason
    if error.details is not None:
        body["details"] = _details_body(error.details)
    if isinstance(error, errors.Expired) and error.continue_token:
        body["metadata"] = {"continue": error.continue_token}
    return {**body, "code": error.code}


def deleted(resource: GroupResource, name: str, uid: str) -> Object:
    """Return the Status body of a delete that is done."""
    details = Details(name=name, group=resource.group, kind=resource.resource, uid=uid)
    return {**_STATUS_HEAD, "status": "Success", "details": _details_body(details)}


def error_from(status: Mapping[str, Any], http_code: int) -> ApiError:
    """Return the error a Status body describes; what cannot be read of it is left out.

    The class follows the reason, else the code. Reason and code stay as they were received even
    when they are not the class's own, so that passing the error on changes nothing.
    """
    reason = _text(status.get("reason"))
    code = ApiError.code
    for given in (status.get("code"), http_code):
        if isinstance(given, int) and 400 <= given < 600:
            code = given
            break
    error_class = _BY_REASON.get(reason) or _BY_CODE.get(code) or ApiError
    message = _text(status.get("message")) or f"the server answered with status {code}"
    details: Details | None = None
    if isinstance(status.get("details"), dict):
        body = cast("Object", status["details"])
        listed = body.get("causes")
        causes = cast("list[object]", listed) if isinstance(listed, list) else []
        retry_after = body.get("retryAfterSeconds")
        details = Details(
            name=_text(body.get("name")),
            group=_text(body.get("group")),
            kind=_text(body.get("kind")),
            uid=_text(body.get("uid")),
            causes=tuple(
                Cause(*(_text(cause.get(key)) for key in ("reason", "message", "field")))
                for cause in (cast("Object", each) for each in causes if isinstance(each, dict))
            ),
            retry_after_seconds=retry_after if isinstance(retry_after, int) else 0,
        )
    error = error_class(message, details)
    error.reason = reason
    error.code = code
    return error


def not_found(resource: GroupResource, name: str) -> errors.NotFound:
    """Refuse: there is no object of this name."""
    return errors.NotFound(f"{resource} {quoted(name)} not found", _about(resource, name))


def unknown_path() -> errors.NotFound:
    """Refuse: no resource is served there."""
    return errors.NotFound("the server could not find the requested resource", Details())


def already_exists(resource: GroupResource, name: str) -> errors.AlreadyExists:
    """Refuse: the name is taken."""
    message = f"{resource} {quoted(name)} already exists"
    return errors.AlreadyExists(message, _about(resource, name))


def conflict(noun: Noun, name: str, why: str = MODIFIED) -> errors.Conflict:
    """Refuse: somebody else changed the object first."""
    message = f"Operation cannot be fulfilled on {noun} {quoted(name)}: {why}"
    return errors.Conflict(message, _about(noun, name))


def uid_conflict(kind: GroupKind, name: str, *, wanted: str, actual: str) -> errors.Conflict:
    """Refuse: the precondition names another object that had this name."""
    return conflict(
        kind,
        name,
        f"the UID in the precondition ({wanted}) does not match the UID in record ({actual}). "
        "The object might have been deleted and then recreated",
    )


def version_conflict(kind: GroupKind, name: str, *, wanted: str, actual: str) -> errors.Conflict:
    """Refuse: the precondition names a version the object has left behind."""
    return conflict(
        kind,
        name,
        f"the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion "
        f"in record ({actual}). The object might have been modified",
    )


def invalid(kind: GroupKind, name: str, causes: Iterable[Cause]) -> errors.Invalid:
    """Refuse: the object breaks rules, and every one it breaks is a cause."""
    found = first(causes)
    message = f"{kind} {quoted(name)} is invalid"
    if found:
        message += f": {summary_of(found[:MOST])}"
    if len(found) > MOST:
        found = found[:MOST]
        message += f"; these are the first {MOST}, there are more"
    return errors.Invalid(message, Details(name, kind.group, kind.kind, causes=found))


def forbidden(
    resource: GroupResource, name: str, why: str, causes: Sequence[Cause] = ()
) -> errors.Forbidden:
    """Refuse: they may not; without a name it is about the resource at large."""
    subject = f"{resource} {quoted(name)}" if name else f"{resource}"
    details = Details(name, resource.group, resource.resource, causes=tuple(causes))
    return errors.Forbidden(f"{subject} is forbidden: {why}", details)


def forbidden_path(why: str) -> errors.Forbidden:
    """Refuse: they may not, and it is about a path that is no resource."""
    return errors.Forbidden(f"forbidden: {why}", Details())


def unauthorized() -> errors.Unauthorized:
    """Refuse: we do not know who this is; saying why would help whoever is guessing."""
    return errors.Unauthorized("Unauthorized")


def method_not_allowed() -> errors.MethodNotAllowed:
    """Refuse: the path is served, but not with this method."""
    message = "the server does not allow this method on the requested resource"
    return errors.MethodNotAllowed(message, Details())


def method_not_served(why: str) -> errors.MethodNotAllowed:
    """Refuse: Kubernetes would do this, and this server does not."""
    return errors.MethodNotAllowed(why, Details())


def not_acceptable(available: Iterable[str]) -> errors.NotAcceptable:
    """Refuse: nothing the client accepts can be served."""
    listed = ", ".join(available)
    message = f"406: Not Acceptable\n\nAvailable representations: {listed}"
    return errors.NotAcceptable(message, Details())


def only_accepted(available: Iterable[str]) -> errors.NotAcceptable:
    """Refuse: the client accepts a type that is known, but not for this."""
    listed = ", ".join(available)
    return errors.NotAcceptable(f"only the following media types are accepted: {listed}")


def unsupported_media_type(accepted: Iterable[str]) -> errors.UnsupportedMediaType:
    """Refuse: the resource does not take bodies of this type."""
    message = "the body of the request was in an unknown format - accepted media types include: "
    return errors.UnsupportedMediaType(message + ", ".join(accepted))


def unknown_media_type() -> errors.UnsupportedMediaType:
    """Refuse: no resource takes bodies of this type."""
    return errors.UnsupportedMediaType("415: Unsupported Media Type", Details())


def too_large(limit: int) -> errors.RequestEntityTooLarge:
    """Refuse: the body is over the limit, in bytes."""
    message = f"Request entity is too large: limit is {limit}"
    return errors.RequestEntityTooLarge(message)


def too_many_requests(retry_after_seconds: int = 1) -> errors.TooManyRequests:
    """Refuse: the server is busy; try again after a while."""
    message = "Too many requests, please try again later."
    return errors.TooManyRequests(message, Details(retry_after_seconds=retry_after_seconds))


def unavailable(why: str, *, retry_after_seconds: int = 0) -> errors.ServiceUnavailable:
    """Refuse for now: starting, stopping, or cut off from what is needed."""
    details = Details(retry_after_seconds=retry_after_seconds) if retry_after_seconds else None
    return errors.ServiceUnavailable(why, details)


def internal(why: str) -> errors.InternalError:
    """Fail: our fault."""
    details = Details(causes=(Cause(reason="", message=why),))
    return errors.InternalError(f"Internal error occurred: {why}", details)


def timed_out(why: str, retry_after_seconds: int = 0) -> errors.DeadlineExceeded:
    """Fail: the answer did not come in time."""
    details = Details(retry_after_seconds=retry_after_seconds)
    return errors.DeadlineExceeded(f"Timeout: {why}", details)


def version_too_large(asked: int, current: int) -> errors.DeadlineExceeded:
    """Fail: the resourceVersion has not happened yet, and did not while we waited."""
    what = "Too large resource version"
    details = Details(causes=(Cause(_VERSION_TOO_LARGE, what),), retry_after_seconds=1)
    return errors.DeadlineExceeded(f"Timeout: {what}: {asked}, current: {current}", details)


def is_about_the_version(error: ApiError) -> bool:
    """Whether clients list again, without the version, when they are told this of it."""
    causes = error.details.causes if error.details else ()
    too_large = any(cause.reason == _VERSION_TOO_LARGE for cause in causes)
    return isinstance(error, errors.Expired) or too_large


def summary_of(causes: Iterable[Cause]) -> str:
    """Say all causes in one line: each once, bracketed when there are several."""
    once = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    return once[0] if len(once) == 1 else f"[{', '.join(once)}]"


def quoted(text: str) -> str:
    """Return the text in double quotes, escaped as Kubernetes escapes it in messages."""
    return json.dumps(text, ensure_ascii=False)


_STATUS_HEAD: Final[Object] = {"kind": "Status", "apiVersion": "v1", "metadata": {}}


def _about(noun: Noun, name: str) -> Details:
    kind = noun.resource if isinstance(noun, GroupResource) else noun.kind
    return Details(name=name, group=noun.group, kind=kind)


def _details_body(details: Details) -> Object:
    causes = (
        {"reason": cause.reason, "message": cause.message, "field": cause.field}
        for cause in details.causes
    )
    body = {
        "name": details.name,
        "group": details.group,
        "kind": details.kind,
        "uid": details.uid,
        "causes": [{key: value for key, value in each.items() if value} for each in causes],
        "retryAfterSeconds": details.retry_after_seconds,
    }
    return {key: value for key, value in body.items() if value}


def _text(value: object) -> str:
    """Return text of another server, made safe to show to people; empty if it is no text."""
    return plain_text.paragraph(value) if isinstance(value, str) else ""
