"""Hold a value against its schema and give every cause at once, in Kubernetes' words.

What a schema asks is worked out once and kept with it. A value that is right costs one look per
field; paths and messages are made only for what is wrong.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, cast

from clusterspace.errors import Cause, MalformedObject
from clusterspace.kube import causes
from clusterspace.kube.field_paths import Key, Step
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.checks import junctors, members, scalars
from clusterspace.kube.schemas.checks.problems import (
    NONE,
    Check,
    Found,
    Problem,
    Where,
    found_below,
)
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
    """Return everything that is wrong with a value; `path` is what the caller calls it.

    Duplicates in sets and maps come last, as Kubernetes looks for them in a second pass.
    """
    try:
        found = Validator.of(schema).problems(value)
        in_order = sorted(found, key=lambda problem: problem.is_duplicate)
        return tuple(problem.tell(Where(path, problem.steps)) for problem in in_order)
    except RecursionError as error:
        raise MalformedObject("the object is nested too deeply to be validated") from error


class Validator(dict[type, "Check | None"]):
    """What one place of a schema asks of a value: the check for each type of value.

    A check is made when a value of its type is first met; None means that every value of the type
    is right, as for most leaves of most objects.
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self._schema = schema

    @classmethod
    def of(cls, schema: Schema) -> "Validator":
        """Return the validator of a schema, the same one each time."""
        made = schema.memo.get(cls)
        if made is None:
            made = schema.memo[cls] = cls(schema)
        return made

    def problems(self, value: Any) -> Found:
        """Return what is wrong with a value, seen from that value."""
        check = self[type(value)]
        return NONE if check is None else check(value)

    def __missing__(self, kind: type) -> "Check | None":
        checks = self._make_checks(kind)
        if len(checks) > 1:
            made = partial(_one_after_another, checks)
        else:
            made = checks[0] if checks else None
        self[kind] = made
        return made

    def _make_checks(self, kind: type) -> list[Check]:
        """Return the checks for values of one type, in the order Kubernetes makes them."""
        checks = self._type_checks(kind)
        if kind is not type(None):
            checks += self._junctor_checks()
        if kind is str:
            checks += scalars.string_checks(self._schema)
        elif kind in (int, float):
            checks += scalars.number_checks(self._schema)
        elif kind is list:
            checks += self._list_checks()
        if self._schema.raw.get("enum"):
            checks.append(scalars.enum_check(self._schema.raw["enum"]))
        if kind is dict:
            checks += self._object_checks()
        return checks

    def _type_checks(self, kind: type) -> list[Check]:
        schema = self._schema
        wanted = {schema.type} if schema.type else set[str]()
        if schema.is_int_or_string:
            wanted = {"integer", "string"}
            if schema.raw.get("format") == "quantity":
                wanted |= {"number"}
        got = _TYPE_NAMES[kind]
        if kind in (int, float) and wanted & {"integer", "number"}:
            return [] if "number" in wanted else [self._whole_number_check]
        if got in wanted or (kind is type(None) and (schema.is_nullable or not wanted)):
            return []
        if not wanted and (kind in (str, list) or not scalars.string_format(schema)):
            return []
        return [lambda _: self._wrong_type(kind)]

    def _whole_number_check(self, number: float) -> Found:
        return NONE if scalars.is_whole(number) else self._wrong_type(float)

    def _wrong_type(self, kind: type) -> Found:
        """Name the format where there is one, unless a text or list came: so does Kubernetes."""
        schema = self._schema
        known_format = scalars.string_format(schema) or scalars.number_format(schema)
        if known_format and kind not in (str, list, type(None)):
            got = {int: "int64", float: "float64"}.get(kind, "")
            return scalars.wrong_type(known_format, got)
        expected = "integer,string" if schema.is_int_or_string else schema.type
        return scalars.wrong_type(expected, _TYPE_NAMES[kind])

    def _junctor_checks(self) -> list[Check]:
        schema = self._schema
        checks: list[Check] = []
        if schema.any_of:
            checks.append(junctors.any_of(_problems_of(schema.any_of)))
        if schema.one_of:
            checks.append(junctors.one_of(_problems_of(schema.one_of)))
        if schema.all_of:
            checks.append(junctors.all_of(_problems_of(schema.all_of)))
        if schema.negated is not None:
            checks.append(junctors.negation(Validator.of(schema.negated).problems))
        return checks

    def _list_checks(self) -> list[Check]:
        schema, raw = self._schema, self._schema.raw
        checks: list[Check] = [self._element_problems] if schema.items is not None else []
        checks += members.size_checks(raw, "Items")
        if raw.get("uniqueItems"):
            checks.append(members.find_repetition)
        if schema.list_type == "set":
            checks.append(members.find_set_duplicates)
        elif schema.list_type == "map":
            checks.append(partial(members.find_map_duplicates, keys=schema.list_map_keys))
        return checks

    def _element_problems(self, elements: Sequence[Any]) -> Found:
        found: list[Problem] = []
        validator = self._items
        for index, element in enumerate(elements):
            check = validator[type(element)]
            if check is not None:
                wrong = check(element)
                if wrong:
                    found += found_below(index, wrong)
        return found

    def _object_checks(self) -> list[Check]:
        schema, raw = self._schema, self._schema.raw
        checks = members.size_checks(raw, "Properties")
        if raw.get("additionalProperties") is False:
            checks.append(self._forbidden_problems)
        if schema.additional is not None:
            checks.append(self._free_problems)
        if raw.get("properties") or raw.get("required"):
            checks.append(self._field_problems)
        return checks

    def _field_problems(self, held: Object) -> Found:
        wrong_fields: dict[Step, Found] = {}
        validators = self._fields
        for name, value in held.items():
            validator = validators.get(name)
            if validator is not None:
                check = validator[type(value)]
                if check is not None:
                    wrong = check(value)
                    if wrong:
                        wrong_fields[name] = wrong
        found = _in_name_order(wrong_fields) if wrong_fields else NONE
        for name in self._required:
            if name not in held:
                found = [*found, _missing(name)]
        return found

    def _free_problems(self, held: Object) -> Found:
        wrong_keys: dict[Step, Found] = {}
        validator = self._free
        named = self._schema.properties
        for key, value in held.items():
            check = validator[type(value)]
            if check is not None and key not in named:
                wrong = check(value)
                if wrong:
                    wrong_keys[Key(key)] = wrong
        return _in_name_order(wrong_keys) if wrong_keys else NONE

    def _forbidden_problems(self, held: Object) -> Found:
        named = self._schema.properties
        return [_forbidden_property(key) for key in sorted(held) if key not in named]

    @cached_property
    def _fields(self) -> Mapping[str, "Validator"]:
        return {name: Validator.of(held) for name, held in self._schema.properties.items()}

    @cached_property
    def _free(self) -> "Validator":
        return Validator.of(cast("Schema", self._schema.additional))

    @cached_property
    def _items(self) -> "Validator":
        return Validator.of(cast("Schema", self._schema.items))

    @cached_property
    def _required(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._schema.raw.get("required") or ()))


def _one_after_another(checks: Sequence[Check], value: Any) -> Found:
    found = NONE
    for check in checks:
        more = check(value)
        if more:
            found = [*found, *more]
    return found


def _problems_of(schemas: Sequence[Schema]) -> list[Check]:
    return [Validator.of(schema).problems for schema in schemas]


def _in_name_order(wrong: Mapping[Step, Found]) -> Found:
    """Return problems by name of the field: the same however the client ordered its fields."""
    names = sorted(wrong, key=str) if len(wrong) > 1 else wrong
    return [problem for name in names for problem in found_below(name, wrong[name])]


def _missing(name: str) -> Problem:
    return Problem(lambda where: causes.required(where.field), (name,))


def _forbidden_property(key: str) -> Problem:
    def tell(where: Where) -> Cause:
        return causes.invalid(
            where.field, key, f"{where.name}.{key} in body is a forbidden property"
        )

    return Problem(tell)
