"""Webhooks that interpret: an object goes there in a ResourceInterpreterContext, an answer back.

Operation              is sent besides the object    answers with
InterpretReplica                                     replicas, replicaRequirements
InterpretComponent                                   components
ReviseReplica          replicas                      patch
Retain                 observedObject                patch
AggregateStatus        aggregatedStatus              patch
InterpretStatus                                      rawStatus
InterpretHealth                                      healthy
InterpretDependency                                  dependencies
"""

import base64
import binascii
import uuid
from typing import Any, Final, cast

import msgspec

from clusterspace.apis import interpreters
from clusterspace.apis.interpreters import (
    AGGREGATE_STATUS,
    CONTEXT_VERSION,
    GROUP,
    RETAIN,
    REVISE_REPLICA,
    InterpreterWebhook,
)
from clusterspace.client.webhooks import Webhooks
from clusterspace.errors import ApiError, ClusterspaceError, InterpretationFailed
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.json_patches import apply_json_patch, parse_json_patch
from clusterspace.kube.objects import Object, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionKind

_API_VERSION: Final = f"{GROUP}/{CONTEXT_VERSION}"
_KIND: Final = "ResourceInterpreterContext"
_FURTHER: Final = {
    REVISE_REPLICA: "replicas",
    RETAIN: "observedObject",
    AGGREGATE_STATUS: "aggregatedStatus",
}


async def ask(
    webhooks: Webhooks, webhook: InterpreterWebhook, operation: str, *arguments: Any
) -> tuple[Any, ...]:
    """Return what a webhook says for an operation, in the form of the scripts for it.

    InterpretationFailed when it cannot be reached, takes too long or answers nonsense.
    """
    about: Object = arguments[0]
    kind = GroupVersionKind.of(str(about.get("apiVersion")), str(about.get("kind")))
    uid = str(uuid.uuid4())
    request: Object = {
        "uid": uid,
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "name": name_of(about),
        "namespace": namespace_of(about),
        "operation": operation,
        "object": about,
    }
    if operation in _FURTHER:
        request[_FURTHER[operation]] = arguments[1]
    context: Object = {"apiVersion": _API_VERSION, "kind": _KIND, "request": request}
    try:
        answer = await webhooks.call(
            f"interpreter webhook {webhook.name}",
            webhook.client,
            context,
            seconds=webhook.seconds,
            is_repeated=False,
        )
    except (ClusterspaceError, *UNREADABLE) as error:
        raise InterpretationFailed(f"it could not be asked: {error}") from error
    response = cast("Object", answer).get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise InterpretationFailed("its answer has no response")
    said = cast("Object", response)
    if said.get("uid") != uid:
        raise InterpretationFailed(f"its answer is to another request: {said.get('uid')!r:.60}")
    if said.get("successful") is not True:
        status = cast("Object", said.get("status") or {})
        message, code = str(status.get("message") or "it does not say why"), status.get("code")
        raise InterpretationFailed(f"it failed: {message}{f' ({code})' if code else ''}")
    return _read(operation, said, about)


def _read(operation: str, said: Object, about: Object) -> tuple[Any, ...]:
    match operation:
        case interpreters.INTERPRET_REPLICA:
            count = said.get("replicas")
            if isinstance(count, bool) or not isinstance(count, int):
                raise InterpretationFailed("its answer has no replicas")
            return count, said.get("replicaRequirements")
        case interpreters.INTERPRET_COMPONENT:
            return (_tables(said, "components"),)
        case interpreters.INTERPRET_DEPENDENCY:
            return (_tables(said, "dependencies"),)
        case interpreters.INTERPRET_HEALTH:
            if not isinstance(said.get("healthy"), bool):
                raise InterpretationFailed("its answer does not say whether it is healthy")
            return (said["healthy"],)
        case interpreters.INTERPRET_STATUS:
            status: Any = said.get("rawStatus")
            if status is not None and not isinstance(status, dict):
                raise InterpretationFailed("the rawStatus in its answer is no object")
            return (cast("Object | None", status),)
        case _:
            return (_patched(said, about),)


def _tables(said: Object, field: str) -> list[Object]:
    listed: Any = said.get(field) or []
    tables = cast("list[Any]", listed) if isinstance(listed, list) else [None]
    if not all(isinstance(each, dict) for each in tables):
        raise InterpretationFailed(f"the {field} in its answer are no list of objects")
    return cast("list[Object]", tables)


def _patched(said: Object, about: Object) -> Object:
    patch = said.get("patch")
    if not patch:
        return about
    if said.get("patchType") != "JSONPatch":
        raise InterpretationFailed(f"its patch is of type {said.get('patchType')!r:.40}")
    try:
        decoded = msgspec.json.decode(base64.b64decode(str(patch), validate=True))
        return apply_json_patch(about, parse_json_patch(decoded))
    except (binascii.Error, ValueError, ApiError, *UNREADABLE) as error:
        raise InterpretationFailed(f"its patch cannot be applied: {error}") from error
