"""A ResourceInterpreterCustomization: its eight operations, and what a script may return for each.

spec.customizations           function          given                 returns
replicaResource               GetReplicas       object                count, requirements
componentResource             GetComponents     object                list
replicaRevision               ReviseReplica     object, count         object
retention                     Retain            desired, observed     object
statusReflection              ReflectStatus     object                table
statusAggregation             AggregateStatus   object, items         object
healthInterpretation          InterpretHealth   object                boolean
dependencyInterpretation      GetDependencies   object                list
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from clusterspace.apis.interpreters import script_of
from clusterspace.errors import MalformedQuantity, ScriptFailed
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.quantities import parse_quantity


class Scripts(Protocol):
    """Whoever runs scripts."""

    async def call(self, script: str, function: str, *arguments: Any) -> tuple[Any, Any]:
        """Return the first two values of a script's function."""
        ...

    async def check(self, script: str) -> None:
        """Raise what is wrong with how a script is written."""
        ...


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a customization may say of its kind."""

    name: str
    """As `interpret --operation` knows it, like Karmada."""
    function: str
    results: tuple[str, ...]
    """What its results are called where they are shown."""
    read: Callable[[tuple[Any, Any], tuple[Any, ...]], tuple[Any, ...]]

    def script_in(self, customization: Object) -> str:
        """Return the script for it; empty when there is none."""
        return script_of(customization, self.name)

    async def run(self, scripts: Scripts, script: str, *arguments: Any) -> tuple[Any, ...]:
        """Run the script of it, and return what it returns, by `results`."""
        return self.read(await scripts.call(script, self.function, *arguments), arguments)


def _replicas(returned: tuple[Any, Any], _: tuple[Any, ...]) -> tuple[Any, ...]:
    count, requirements = returned
    if isinstance(count, bool) or not isinstance(count, int):
        raise ScriptFailed(f"its first value is a whole number, and not {_shown(count)}")
    if requirements is not None and not isinstance(requirements, dict):
        raise ScriptFailed(f"its second value is a table or nil, and not {_shown(requirements)}")
    return count, _with_quantities(cast("Object | None", requirements))


def _object(returned: tuple[Any, Any], given: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(returned[0], dict):
        raise ScriptFailed(f"it returns an object, and not {_shown(returned[0])}")
    return (_with_empties(cast("Object", returned[0]), [each for each in given if each]),)


def _list(returned: tuple[Any, Any], given: tuple[Any, ...]) -> tuple[Any, ...]:
    listed: Any = [] if returned[0] in (None, {}) else returned[0]
    tables = cast("list[Any]", listed) if isinstance(listed, list) else [None]
    if not all(isinstance(each, dict) for each in tables):
        raise ScriptFailed(f"it returns a list of tables, and not {_shown(listed)}")
    return ([_with_empties(each, given) for each in tables],)


def _dependencies(returned: tuple[Any, Any], given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return each dependency once, in order: pod templates of one object name the same ones."""
    (listed,) = _list(returned, given)
    by_text = {repr(sorted(each.items())): each for each in listed}
    parts = ("apiVersion", "kind", "namespace", "name")
    return (sorted(by_text.values(), key=lambda each: [str(each.get(part, "")) for part in parts]),)


def _components(returned: tuple[Any, Any], given: tuple[Any, ...]) -> tuple[Any, ...]:
    (components,) = _list(returned, given)
    field = "replicaRequirements"
    return (
        [
            {**each, field: _with_quantities(each[field])}
            if isinstance(each.get(field), dict)
            else each
            for each in components
        ],
    )


def _with_quantities(requirements: Object | None) -> Object | None:
    """Return requirements with quantities as bindings write them: scripts count in numbers."""
    mended = _with_empties(requirements, ())
    requests = find_at(mended, "resourceRequest")
    if not isinstance(requests, dict):
        return mended
    try:
        written = {
            name: str(parse_quantity(value if isinstance(value, str) else f"{value:.9g}"))
            for name, value in cast("Object", requests).items()
        }
    except (MalformedQuantity, ValueError, TypeError):
        raise ScriptFailed(f"resourceRequest has quantities, and not {requests!r:.80}") from None
    return {**mended, "resourceRequest": written}


def _health(returned: tuple[Any, Any], _: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(returned[0], bool):
        raise ScriptFailed(f"it returns true or false, and not {_shown(returned[0])}")
    return (returned[0],)


OPERATIONS: Final = (
    Operation("Retain", "Retain", ("retained",), _object),
    Operation(
        "InterpretReplica",
        "GetReplicas",
        ("replica", "requires"),
        _replicas,
    ),
    Operation("InterpretComponent", "GetComponents", ("components",), _components),
    Operation("ReviseReplica", "ReviseReplica", ("revised",), _object),
    Operation("InterpretStatus", "ReflectStatus", ("status",), _object),
    Operation(
        "AggregateStatus",
        "AggregateStatus",
        ("aggregatedStatus",),
        _object,
    ),
    Operation("InterpretHealth", "InterpretHealth", ("healthy",), _health),
    Operation(
        "InterpretDependency",
        "GetDependencies",
        ("dependencies",),
        _dependencies,
    ),
)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nil"
        case bool():
            return str(value).lower()
        case dict() | list():
            return "a table"
        case _:
            return repr(value)[:40]


def _with_empties(value: Any, references: Iterable[Any]) -> Any:
    """Return a value with `[]` and `{}` as they were: Lua has one empty table for both.

    What is empty in no reference was made by the script, which cannot say what it meant; it is left
    out, as Karmada does it.
    """
    empties: dict[tuple[str, ...], Any] = {}
    for each in references:
        _note_empties(each, (), empties)
    return _mended(value, (), empties)


def _note_empties(value: Any, path: tuple[str, ...], empties: dict[tuple[str, ...], Any]) -> None:
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[str, Any]", value).items():
            if each in ({}, []):
                empties.setdefault((*path, key), each)
            _note_empties(each, (*path, key), empties)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            _note_empties(each, path, empties)


def _mended(value: Any, path: tuple[str, ...], empties: Mapping[tuple[str, ...], Any]) -> Any:
    if isinstance(value, list):
        return [_mended(each, path, empties) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    mended: Object = {}
    for key, each in cast("Object", value).items():
        at = (*path, key)
        if each == {}:
            if at in empties:
                mended[key] = empties[at]
        else:
            mended[key] = _mended(each, at, empties)
    return mended
