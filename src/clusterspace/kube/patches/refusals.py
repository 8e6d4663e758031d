"""The words Kubernetes refuses a patch with: they name types and values the way Go prints them."""

from typing import Any, Final, cast

_JSON_NAMES: Final[dict[Any, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
}

_GO_NAMES: Final[dict[Any, str]] = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
}


def cannot_read(value: Any, *, wanted: str) -> str:
    """Say that a JSON value is not of the wanted type; `wanted` is such as "Go value of type T"."""
    return f"json: cannot unmarshal {_JSON_NAMES.get(type(value), 'null')} into {wanted}"


def wrong_type(expected: type, received: Any) -> str:
    """Say that a value inside a patch is not of the type its place calls for."""
    return f"expected a {_GO_NAMES[expected]}, but received a {type_name(received)}"


def type_name(value: Any) -> str:
    """Return Go's name for the type of a decoded JSON value."""
    return _GO_NAMES.get(type(value), "nil")


def shown(value: Any) -> str:
    """Return a decoded JSON value as Go's `%v` prints it: `map[image:nginx ports:[80 443]]`."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            held = cast("dict[str, Any]", value)
            return f"map[{' '.join(f'{key}:{shown(held[key])}' for key in sorted(held))}]"
        case list():
            return f"[{' '.join(shown(element) for element in cast('list[Any]', value))}]"
        case _:
            return str(value)


def place_of(key: str, above: str) -> str:
    """Return what to call a field of the map at `above`, which is empty for the whole patch."""
    return f"{above}.{key}" if above else key
