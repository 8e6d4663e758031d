"""Validate a value by its schema and return every cause at once, in Kubernetes' words.

The checks of a schema are made once and kept with it. A value that is right costs one look per
field; paths and messages are made only for what is wrong.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from clusterspace.errors import Cause, MalformedObject
from clusterspace.kube import causes
from clusterspace.kube.causes import Key, Step, Steps, dotted_text, field_text
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas import checks
from clusterspace.kube.schemas.checks import NONE, Check, Found, Problem, Where, found_below
from clusterspace.kube.schemas.model import Schema

_TYPE_NAMES: Final[Mapping[type, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def validate(value: Any, schema: Schema, *, path: str = "") -> tuple[Cause, ...]:
    """Return the causes of everything wrong with a value; `path` is the caller's name for it.

    Duplicates in sets and maps come last, as Kubernetes looks for them in a second pass.
    """
    try:
        found = Validator.of(schema).problems(value)
        in_order = sorted(found, key=lambda problem: problem.is_duplicate)
        return tuple(problem.cause(Where(path, problem.steps)) for problem in in_order)
    except RecursionError as error:
        raise MalformedObject("the object is nested too deeply to be validated") from error


class Validator(dict[type, "Check | None"]):
    """The checks of one place of a schema, one for each type of value.

    A check is made when a value of its type is first met; None means that every value of the type
    is right, as for most leaves of most objects.
    """

    # Checks are made level by level, on first use: making one asks for the validators of the level
    # below, which are empty until a value gets there. A schema that contains itself, as that of
    # CustomResourceDefinition does, therefore costs as much as the deepest object it has seen.

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self._schema = schema

    @classmethod
    def of(cls, schema: Schema) -> "Validator":
        """Return the validator of a schema, the same one each time."""
        cached = schema.memo.get(cls)
        if cached is None:
            cached = schema.memo[cls] = cls(schema)
        return cached

    def problems(self, value: Any) -> Found:
        """Return the problems of a value, seen from that value."""
        check = self[type(value)]
        return NONE if check is None else check(value)

    def __missing__(self, kind: type) -> "Check | None":
        """Make the check for values of one type, in the order in which Kubernetes checks."""
        schema = self._schema
        parts = self._type_checks(kind)
        if kind is not type(None):
            for alternatives, junctor in (
                (schema.any_of, checks.any_of),
                (schema.one_of, checks.one_of),
                (schema.all_of, checks.all_of),
            ):
                if alternatives:
                    parts.append(junctor([Validator.of(each).problems for each in alternatives]))
            if schema.negated is not None:
                parts.append(checks.negation(Validator.of(schema.negated).problems))
        if kind is str:
            parts += checks.string_checks(schema)
        elif kind in (int, float):
            parts += checks.number_checks(schema)
        elif kind is list:
            parts += self._list_checks()
        if schema.raw.get("enum"):
            parts.append(checks.enum_check(schema.raw["enum"]))
        if kind is dict:
            parts += self._object_checks()

        def one_after_another(value: Any) -> Found:
            found = NONE
            for part in parts:
                more = part(value)
                if more:
                    found = [*found, *more]
            return found

        if len(parts) > 1:
            self[kind] = one_after_another
        else:
            self[kind] = parts[0] if parts else None
        return self[kind]

    def _type_checks(self, kind: type) -> list[Check]:
        schema = self._schema
        wanted = {schema.type} if schema.type else set[str]()
        if schema.is_int_or_string:
            wanted = {"integer", "string"}
            if schema.raw.get("format") == "quantity":
                wanted |= {"number"}
        got = _TYPE_NAMES[kind]
        if kind in (int, float) and wanted & {"integer", "number"}:
            if "number" in wanted:
                return []
            return [lambda number: NONE if checks.is_whole(number) else self._wrong_type(float)]
        if got in wanted or (kind is type(None) and (schema.is_nullable or not wanted)):
            return []
        if not wanted and (kind in (str, list) or not checks.string_format(schema)):
            return []
        return [lambda _: self._wrong_type(kind)]

    def _wrong_type(self, kind: type) -> Found:
        """Name the format where there is one, unless a text or list came: so does Kubernetes."""
        schema = self._schema
        known_format = checks.string_format(schema) or checks.number_format(schema)
        if known_format and kind not in (str, list, type(None)):
            got = {int: "int64", float: "float64"}.get(kind, "")
            return checks.wrong_type(known_format, got)
        expected = "integer,string" if schema.is_int_or_string else schema.type
        return checks.wrong_type(expected, _TYPE_NAMES[kind])

    def _list_checks(self) -> list[Check]:
        schema, raw = self._schema, self._schema.raw
        parts: list[Check] = []
        if schema.items is not None:
            validator = Validator.of(schema.items)

            def check_elements(elements: Sequence[Any]) -> Found:
                found: list[Problem] = []
                for index, element in enumerate(elements):
                    check = validator[type(element)]
                    if check is not None:
                        wrong = check(element)
                        if wrong:
                            found += found_below(index, wrong)
                return found

            parts.append(check_elements)
        parts += checks.size_checks(raw, "Items")
        if raw.get("uniqueItems"):
            parts.append(checks.find_repetition)
        if schema.list_type == "set":
            parts.append(checks.find_set_duplicates)
        elif schema.list_type == "map":
            parts.append(partial(checks.find_map_duplicates, keys=schema.list_map_keys))
        return parts

    def _object_checks(self) -> list[Check]:
        schema, raw = self._schema, self._schema.raw
        named = schema.properties
        parts = checks.size_checks(raw, "Properties")
        if raw.get("additionalProperties") is False:
            parts.append(
                lambda fields: [
                    checks.forbidden_property(key) for key in sorted(fields) if key not in named
                ]
            )
        if schema.additional is not None:
            free = Validator.of(schema.additional)

            def check_free_keys(fields: Object) -> Found:
                wrong_keys: dict[Step, Found] = {}
                for key, value in fields.items():
                    check = free[type(value)]
                    if check is not None and key not in named:
                        wrong = check(value)
                        if wrong:
                            wrong_keys[Key(key)] = wrong
                return _in_name_order(wrong_keys) if wrong_keys else NONE

            parts.append(check_free_keys)
        if raw.get("properties") or raw.get("required"):
            parts.append(self._field_check())
        return parts

    def _field_check(self) -> Check:
        validators = {name: Validator.of(each) for name, each in self._schema.properties.items()}
        required = tuple(dict.fromkeys(self._schema.raw.get("required") or ()))

        def check_fields(fields: Object) -> Found:
            wrong_fields: dict[Step, Found] = {}
            for name, value in fields.items():
                validator = validators.get(name)
                if validator is not None:
                    check = validator[type(value)]
                    if check is not None:
                        wrong = check(value)
                        if wrong:
                            wrong_fields[name] = wrong
            found = _in_name_order(wrong_fields) if wrong_fields else NONE
            for name in required:
                if name not in fields:
                    missing = Problem(lambda where: causes.required(where.field), (name,))
                    found = [*found, missing]
            return found

        return check_fields


def _in_name_order(wrong: Mapping[Step, Found]) -> Found:
    """Return problems by name of the field: the same however the client ordered its fields."""
    names = sorted(wrong, key=str) if len(wrong) > 1 else wrong
    return [problem for name in names for problem in found_below(name, wrong[name])]


# Ratcheting.


def still_new(
    found: Iterable[Cause], new: Object, old: Object, schema: Schema
) -> tuple[Cause, ...]:
    """Return the causes that a change is to blame for: those not about something unchanged.

    Schemas get stricter while objects are stored, and somebody who adds a label must not have to
    mend a field that nobody touched. Fields are compared with their old values, and so are the
    elements of `map` lists. Elements of other lists have no identity, so such a list is compared
    as one: with `ports: [1, -1]` unchanged the -1 stays, with `ports: [2, -1]` it is refused.
    """
    listed = tuple(found)
    if not listed:
        return ()
    unchanged = tuple(_unchanged(new, old, schema, ()))
    inside = tuple(f"{path}{end}" for path in unchanged for end in (".", "["))
    return tuple(
        cause
        for cause in listed
        if cause.field not in unchanged and not cause.field.startswith(inside)
    )


def _unchanged(new: Any, old: Any, schema: Schema, steps: Steps) -> Iterator[str]:
    """Yield the paths of the largest parts that are unchanged."""
    if steps and new == old:
        # Some causes write a free key in brackets, some after a dot.
        yield from (field_text(steps), dotted_text(steps))
    elif isinstance(new, dict) and isinstance(old, dict):
        fields, old_fields = cast("Object", new), cast("Object", old)
        for name in fields.keys() & old_fields.keys():
            known = schema.field(name)
            if known is not None:
                step: Step = name if name in schema.properties else Key(name)
                yield from _unchanged(fields[name], old_fields[name], known, (*steps, step))
    elif isinstance(new, list) and isinstance(old, list) and schema.list_type == "map":
        old_by_key = {_key_of(each, schema): each for each in cast("list[Any]", old)}
        for index, element in enumerate(cast("list[Any]", new)):
            key = _key_of(element, schema)
            if schema.items is not None and key in old_by_key:
                yield from _unchanged(element, old_by_key[key], schema.items, (*steps, index))


def _key_of(element: Any, schema: Schema) -> tuple[str, ...]:
    fields = cast("Object", element) if isinstance(element, dict) else {}
    return tuple(repr(fields.get(key)) for key in schema.list_map_keys)
