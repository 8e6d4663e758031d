"""Places in a CustomResourceDefinition's schema that hold a schema or something simpler."""

from collections.abc import Mapping
from typing import Any, Final

from clusterspace.kube.objects import Object

_SCHEMA: Final = "schema"
_ALLOWS: Final = "allows"
_BESIDE_A_SCHEMA: Final[Mapping[str, str]] = {
    "apiextensions.JSONSchemaPropsOrArray": "schemas",
    "apiextensions.JSONSchemaPropsOrBool": _ALLOWS,
    "apiextensions.JSONSchemaPropsOrStringArray": "property",
}


def unwrap(message_name: str, decoded: Object) -> Any:
    """Return what the JSON shows for such a message; any other message as it is."""
    beside = _BESIDE_A_SCHEMA.get(message_name)
    if beside is None:
        return decoded
    if isinstance(decoded.get(beside), list):
        return decoded[beside]
    if _SCHEMA in decoded:
        return decoded[_SCHEMA]
    return bool(decoded.get(_ALLOWS)) if beside == _ALLOWS else None


def wrap(message_name: str, shown: Any) -> Any:
    """Return the fields of such a message from what the JSON shows; the inverse of `unwrap`."""
    beside = _BESIDE_A_SCHEMA.get(message_name)
    if beside is None:
        return shown
    if not isinstance(shown, dict):
        return {beside: shown}
    schema: Object = {_SCHEMA: shown}
    # Go clients say that a place with a schema also allows something.
    return {**schema, _ALLOWS: True} if beside == _ALLOWS else schema
