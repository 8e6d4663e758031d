"""The tree to a program: names and types checked, functions chosen, all faults reported.

In this order: what a program is when it runs; the compiler, one pass over the tree; how calls
choose their functions; and the macros that go through lists and maps, which is where a program
can come to take long.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from clusterspace.kube.cel import syntax
from clusterspace.kube.cel.libraries import FUNCTIONS
from clusterspace.kube.cel.libraries.standard import TYPE_NAMES, value_of
from clusterspace.kube.cel.parser import parse
from clusterspace.kube.cel.syntax import CompileFailed, Fault, Node
from clusterspace.kube.cel.types import (
    BOOL,
    DYN,
    INT,
    LIST,
    MAP,
    OPTIONAL,
    STRING,
    TYPE,
    UNKNOWN,
    Bindings,
    Overload,
    Type,
    fits,
    is_loose,
    joined,
    list_of,
    map_of,
    optional_of,
    resolved,
)
from clusterspace.kube.cel.values import (
    NONE,
    EvaluationFailed,
    Meter,
    Optional,
    StructValue,
    kind_of,
    no_overload,
)
from clusterspace.kube.objects import Object

_NO_OVERLOAD: Final = "found no matching overload for '{}' applied to '{}'"
_UNDECLARED: Final = "undeclared reference to '{}' (in container '')"

VARIABLES_TYPE: Final = "kubernetes.variables"
"""The type of a policy's `variables`, each of which is evaluated when it is first looked at."""

OBJECT_TYPE: Final = "Object"
PATCH_TYPE: Final = "JSONPatch"
"""What policies that change objects write out: `Object.spec{…}` has the type of its name."""

_SIZED: Final = ("string", "bytes", "list", "map", "dyn")
"""Types whose values are paid for by their size."""


class Frame:
    """One run of a program: the values of its variables, by slot, and the budget."""

    __slots__ = ("meter", "slots")

    def __init__(self, meter: Meter, slots: list[Any]) -> None:
        self.meter = meter
        self.slots = slots


Run: TypeAlias = Callable[[Frame], Any]


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled part: the type of its value, and how to get it."""

    type: Type
    run: Run


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression."""

    text: str
    code: Code
    slots: Mapping[str, int]
    slot_count: int
    uses: frozenset[str]
    """The variables it looks at."""

    @property
    def type(self) -> Type:
        """The type of its value."""
        return self.code.type

    def evaluate(self, variables: Mapping[str, Any], meter: Meter) -> Any:
        """Return its value; EvaluationFailed if it has none, BudgetExceeded if it takes long."""
        slots: list[Any] = [None] * self.slot_count
        for name, value in variables.items():
            slots[self.slots[name]] = value
        return self.code.run(Frame(meter, slots))


_CHECKED_LITERALS: Final = ("matches", "duration", "timestamp")
"""Functions whose last argument, when written out, must be one they can read."""


def compile_expression(
    text: str, variables: Mapping[str, Type], *, has_patch_types: bool = False
) -> Program:
    """Return the program of an expression about these variables; CompileFailed if there is none.

    With `has_patch_types` it may write out objects and patches: `Object{…}`, `JSONPatch{…}`.
    """
    compiler = Compiler(variables, has_patch_types=has_patch_types)
    code = compiler.code(parse(text))
    if compiler.faults:
        raise CompileFailed(text, compiler.faults)
    slots = {name: index for index, name in enumerate(variables)}
    return Program(text, code, slots, compiler.slot_count, frozenset(compiler.used))


class Compiler:
    """One pass over a tree.

    Variables live in numbered slots of the frame a program runs in: those of the expression come
    first, and each macro adds slots for its own. A slot is never given away again, so that a macro
    inside another cannot overwrite the variables of the outer one: in
    `self.a.all(x, self.b.all(y, x < y))` self has slot 0, oldSelf 1, x 2 and y 3.
    """

    def __init__(self, variables: Mapping[str, Type], *, has_patch_types: bool = False) -> None:
        self._has_patch_types = has_patch_types
        self.faults: list[Fault] = []
        self.used: set[str] = set()
        self.slot_count = len(variables)
        self._may_mix = False
        self._scope = {name: (slot, kind) for slot, (name, kind) in enumerate(variables.items())}

    def code(self, node: Node) -> Code:
        """Compile a node; what has a fault gets a type that fits everywhere."""
        match node:
            case syntax.Literal():
                value = node.value
                return Code(node.type, lambda _: value)
            case syntax.Name() if node.name in self._scope:
                slot, kind = self._scope[node.name]
                self.used.add(node.name)
                return Code(kind, lambda frame: frame.slots[slot])
            case syntax.Name() if node.name in TYPE_NAMES:
                type_value = TYPE_NAMES[node.name]
                return Code(Type(TYPE), lambda _: type_value)
            case syntax.Name():
                return self.fault(node.at, _UNDECLARED.format(node.name))
            case syntax.Select() | syntax.Has():
                return self._field(node)
            case syntax.Call(function=syntax.CHOICE):
                return self._choice(node)
            case syntax.Call():
                return self._call(node)
            case syntax.Junction():
                return self._junction(node)
            case syntax.ListLiteral():
                elements = [self.code(element) for element in node.elements]
                runs = [element.run for element in elements]
                common = self._common(elements, [each.at for each in node.elements])
                return Code(list_of(common), lambda frame: [run(frame) for run in runs])
            case syntax.MapLiteral():
                keys = [self.code(key) for key, _ in node.entries]
                values = [self.code(value) for _, value in node.entries]
                key_type = self._common(keys, [key.at for key, _ in node.entries])
                value_type = self._common(values, [value.at for _, value in node.entries])
                pairs = [(key.run, value.run) for key, value in zip(keys, values, strict=True)]
                return Code(
                    map_of(key_type, value_type),
                    lambda frame: {key(frame): value(frame) for key, value in pairs},
                )
            case syntax.StructLiteral():
                return self._struct(node)
            case syntax.Macro():
                return _macro_code(self, node)

    def _struct(self, node: syntax.StructLiteral) -> Code:
        """Compile an object written out; only policies that change objects know types for it."""
        name = node.name
        is_object = name == OBJECT_TYPE or name.startswith(f"{OBJECT_TYPE}.")
        if not self._has_patch_types or not (is_object or name == PATCH_TYPE):
            return self.fault(node.at, _UNDECLARED.format(name))
        fields = [(each, at, self.code(value)) for each, at, value in node.fields]
        for each, at, code in fields:
            if is_object or each == "value":
                continue
            if each not in ("op", "path", "from"):
                self.fault(at, f"undefined field '{each}'")
            elif not fits(STRING, code.type, {}):
                why = f"expected type of field '{each}' is 'string' but provided type is"
                self.fault(at, f"{why} '{code.type}'")
        runs = [(each, code.run) for each, _, code in fields]
        return Code(
            Type(name), lambda frame: StructValue(name, {each: run(frame) for each, run in runs})
        )

    def fault(self, at: int, message: str) -> Code:
        """Remember a fault and go on."""
        self.faults.append(Fault(at, message))
        return Code(UNKNOWN, _never)

    def truth(self, code: Code, at: int, function: str, others: Sequence[Type] = ()) -> Run:
        """Return the run of a part that must give true or false."""
        if not fits(BOOL, code.type, {}):
            listed = ", ".join(str(each) for each in (*others, code.type))
            self.fault(at, _NO_OVERLOAD.format(function, f"({listed})"))
        return code.run if code.type == BOOL else _checked_truth(code.run)

    @contextmanager
    def variables(self, named: Mapping[str, Type]) -> Generator[list[int]]:
        """Give the variables of a macro their slots while its steps are compiled."""
        outer = dict(self._scope)
        slots = [self.slot_count + index for index in range(len(named))]
        self.slot_count += len(named)
        for slot, (name, kind) in zip(slots, named.items(), strict=True):
            self._scope[name] = (slot, kind)
        yield slots
        self._scope = outer

    def _field(self, node: syntax.Select | syntax.Has) -> Code:
        if isinstance(node, syntax.Select) and isinstance(node.operand, syntax.Name):
            # `authorizer.requestResource` is the name of a variable, not a field of another.
            qualified = f"{node.operand.name}.{node.field}"
            if qualified in self._scope:
                slot, kind = self._scope[qualified]
                self.used.add(qualified)
                return Code(kind, lambda frame: frame.slots[slot])
        operand = self.code(node.operand)
        is_optional = operand.type.name == OPTIONAL
        kind = operand.type.params[0] if is_optional else operand.type
        # An object may have a field under another name than the one expressions spell.
        name, type_ = node.field, UNKNOWN
        if is_loose(kind):
            type_ = DYN
        elif kind.name == MAP:
            type_ = kind.params[1]
        elif kind.fields is None:
            self.fault(node.at, f"type '{kind}' does not support field selection")
        elif name not in kind.fields:
            self.fault(node.at, f"undefined field '{name}'")
        else:
            name, type_ = kind.fields[name].name, kind.fields[name].type

        run = operand.run

        def select(frame: Frame) -> Any:
            value = run(frame)
            if not isinstance(value, dict):
                raise EvaluationFailed(f"no such key: {name}") if value is None else no_overload()
            return value_of(cast("Object", value), name)

        def select_optional(frame: Frame) -> Optional:
            fields = _fields_in(run(frame))
            return Optional(fields[name], is_present=True) if name in fields else NONE

        if kind.name == VARIABLES_TYPE:
            if isinstance(node, syntax.Has):
                return Code(BOOL, lambda _: True)
            return Code(type_, lambda frame: run(frame).get(name, frame.meter))
        if isinstance(node, syntax.Has):
            return Code(BOOL, lambda frame: name in _fields_in(run(frame)))
        if is_optional or node.is_optional:
            return Code(optional_of(type_), select_optional)
        return Code(type_, select)

    def _call(self, node: syntax.Call) -> Code:
        name, target = node.function, node.target
        if isinstance(target, syntax.Name) and target.name not in self._scope:
            # `sets.contains` is the name of a function, not a method of a variable.
            qualified = f"{target.name}.{name}"
            if qualified in FUNCTIONS:
                name, target = qualified, None
        given = node.args if target is None else (target, *node.args)
        # Arguments of `format` are written into a text and need not be of one kind.
        outer, self._may_mix = self._may_mix, self._may_mix or name == "format"
        args = [self.code(each) for each in given]
        self._may_mix = outer
        if name not in FUNCTIONS:
            return self.fault(node.at, _UNDECLARED.format(name))
        overloads = [each for each in FUNCTIONS[name] if each.is_method == (target is not None)]
        code = _call_code(overloads, args)
        if code is None:
            listed = ", ".join(str(each.type) for each in args[target is not None :])
            applied = f"({listed})" if target is None else f"{args[0].type}.({listed})"
            return self.fault(node.at, _NO_OVERLOAD.format(name, applied))
        last = node.args[-1] if name in _CHECKED_LITERALS else None
        if isinstance(last, syntax.Literal) and not self.faults:
            try:
                # A pattern is read before the text it is matched with, so any text will do.
                overload = FUNCTIONS[name][0]
                overload.run(*([""] if len(overload.args) > 1 else []), last.value)
            except EvaluationFailed:
                self.fault(last.at, f"invalid {name} argument")
        return code

    def _choice(self, node: syntax.Call) -> Code:
        condition, yes, no = (self.code(each) for each in node.args)
        both = joined(yes.type, no.type)
        if both is None or not fits(BOOL, condition.type, {}):
            listed = f"({condition.type}, {yes.type}, {no.type})"
            return self.fault(node.at, _NO_OVERLOAD.format(syntax.CHOICE, listed))
        decide, run_yes, run_no = _checked_truth(condition.run), yes.run, no.run
        return Code(both, lambda frame: (run_yes if decide(frame) else run_no)(frame))

    def _junction(self, node: syntax.Junction) -> Code:
        codes = [self.code(term) for term in node.terms]
        runs: list[Run] = []
        for index, code in enumerate(codes):
            sign = node.signs[max(index - 1, 0)]
            if index == 0 and not fits(BOOL, code.type, {}):
                listed = f"({code.type}, {codes[1].type})"
                self.fault(sign, _NO_OVERLOAD.format(node.function, listed))
                runs.append(_never)
            else:
                runs.append(self.truth(code, sign, node.function, (BOOL,)))
        deciding = node.function == syntax.OR

        # A term that decides makes up for terms that have no value, on either side of it:
        # `has(self.a) && self.a > 0` and `self.a > 0 && has(self.a)` are both false without `a`.
        def decide(frame: Frame) -> bool:
            failure: EvaluationFailed | None = None
            # A budget that is spent is no EvaluationFailed: no other term makes up for that.
            for run in runs:
                try:
                    if run(frame) is deciding:
                        return deciding
                except EvaluationFailed as error:
                    failure = failure or error
            if failure is not None:
                raise failure
            return not deciding

        return Code(BOOL, decide)

    def _common(self, codes: Sequence[Code], places: Sequence[int]) -> Type:
        """Return the one type that all have; elements of a literal are all alike."""
        common: Type | None = None
        for code, at in zip(codes, places, strict=True):
            both = code.type if common is None else joined(common, code.type)
            if common is not None and DYN in (common, code.type) and common != code.type:
                both = both if UNKNOWN in (common, code.type) else None
            if both is None and self._may_mix:
                common = DYN
            elif both is None:
                self.fault(at, f"expected type '{common}' but found '{code.type}'")
            else:
                common = both
        return DYN if common is None else common


def _never(_: Frame) -> Any:
    raise no_overload()


def _checked_truth(run: Run) -> Run:
    def check(frame: Frame) -> bool:
        value = run(frame)
        if not isinstance(value, bool):
            raise no_overload()
        return value

    return check


def _fields_in(value: Any) -> Object:
    """Return the fields of an object, or of one that may be missing; none of anything else."""
    content = value.content if isinstance(value, Optional) else value
    return cast("Object", content) if isinstance(content, dict) else {}


# Calls: which function is meant, and what its arguments cost.


def _call_code(overloads: Sequence[Overload], args: Sequence[Code]) -> Code | None:
    """Return the compiled call; None when no overload takes arguments of these types.

    With one candidate and types that are known throughout, the choice is made now. Otherwise it
    is made at every call, by the values: `dyn(self.a) + dyn(self.b)` may add ints or join texts.
    """
    candidates: list[Overload] = []
    results: list[Type] = []
    for overload in overloads:
        bindings: Bindings = {}
        if len(overload.args) == len(args) and all(
            fits(wanted, given.type, bindings)
            for wanted, given in zip(overload.args, args, strict=True)
        ):
            candidates.append(overload)
            results.append(resolved(overload.result, bindings))
    if not candidates:
        return None
    result = results[0] if all(each == results[0] for each in results) else DYN
    runs = [arg.run for arg in args]
    functions = [(each.args, each.metered_run) for each in candidates]
    is_sure = len(candidates) == 1 and not any(_is_vague(arg.type) for arg in args)
    pays = any(arg.type.name in _SIZED for arg in args)
    _, only = functions[0]

    # Arguments are paid for before the function runs: one that takes long by the size of what it is
    # given must not even start on an empty budget. Metered functions then pay for what they find.
    def call(frame: Frame) -> Any:
        values = [run(frame) for run in runs]
        if pays:
            _pay(frame.meter, values)
        return only(frame.meter, *values)

    # What is not known when compiling is paid for as if it were sized: it may turn out to be.
    def dispatch(frame: Frame) -> Any:
        values = [run(frame) for run in runs]
        _pay(frame.meter, values)
        for wanted, function in functions:
            if all(_is_of(value, each) for value, each in zip(values, wanted, strict=True)):
                return function(frame.meter, *values)
        raise no_overload()

    return Code(result, call if is_sure else dispatch)


def _is_vague(given: Type) -> bool:
    return is_loose(given) or any(_is_vague(param) for param in given.params)


def _pay(meter: Meter, values: Sequence[Any]) -> None:
    """Pay for the arguments of a call by their size."""
    sized = cast(
        "Iterable[Sized]", (each for each in values if isinstance(each, str | bytes | list | dict))
    )
    meter.spend(sum(len(value) for value in sized) // 10)


def _is_of(value: Any, wanted: Type) -> bool:
    """Tell whether a value is of a type, as far as its first element shows."""
    if wanted.is_parameter or is_loose(wanted):
        return True
    if kind_of(value) != wanted.name:
        return False
    if isinstance(value, list) and value and wanted.params:
        return _is_of(cast("list[Any]", value)[0], wanted.params[0])
    return True


# Macros: `self.ports.all(port, port.number > 0)`. A program without macros takes as many steps as
# it has parts. With them it is paid for by the round: each costs as many steps as the macro's body
# has parts.


@dataclass(frozen=True, slots=True)
class _Walk:
    """How to go through the operand, one round after the other."""

    operand: Run
    slots: tuple[int, ...]
    cost: int

    def rounds(self, frame: Frame) -> Iterator[Any]:
        """Yield the subject of each round, with the macro's variables set to it.

        With one variable that is the element of a list or the key of a map, with two the index
        or the key; the slots of the variables are overwritten by the next round.
        """
        collection = self.operand(frame)
        if not isinstance(collection, list | dict):
            raise no_overload()
        entries = cast("list[Any] | dict[Any, Any]", collection)
        subjects: Iterable[tuple[Any, ...]]
        if len(self.slots) == 1:
            subjects = ((each,) for each in entries)
        else:
            subjects = entries.items() if isinstance(entries, dict) else enumerate(entries)
        frame.meter.spend(1)
        for values in subjects:
            frame.meter.spend(self.cost)
            for slot, value in zip(self.slots, values, strict=True):
                frame.slots[slot] = value
            yield values[0]


_Make: TypeAlias = Callable[[_Walk, Sequence[Run]], Run]

_CONDITIONS: Final = {"all": syntax.AND, "exists": syntax.OR}
_GIVING_VALUES: Final = ("map", "transformList", "transformMap", "sortBy")
"""Macros whose last step gives a value; all other steps give true or false."""


def _macro_code(compiler: Compiler, node: syntax.Macro) -> Code:
    """Compile a macro."""
    operand = compiler.code(node.operand)
    if node.kind in ("optMap", "optFlatMap"):
        return _optional_code(compiler, node, operand)
    source = operand.type
    if is_loose(source):
        key, value = DYN, DYN
    elif source.name == MAP:
        key, value = source.params
    elif source.name == LIST:
        key, value = INT, source.params[0]
    else:
        why = (
            f"expression of type '{source}' cannot be range of a comprehension "
            "(must be list, map, or dynamic)"
        )
        return compiler.fault(node.operand.at, why)

    # A single variable is the key of a map but the element of a list.
    single = (key,) if source.name == MAP else (value,)
    types = (key, value) if len(node.variables) > 1 else single
    with compiler.variables(dict(zip(node.variables, types, strict=True))) as slots:
        steps = [compiler.code(step) for step in node.steps]
    runs: list[Run] = []
    for index, step in enumerate(steps):
        if node.kind in _GIVING_VALUES and index == len(steps) - 1:
            runs.append(step.run)
        else:
            function = _CONDITIONS.get(node.kind, syntax.CHOICE)
            runs.append(compiler.truth(step, node.at, function, (BOOL,)))

    if node.kind in ("filter", "sortBy"):
        result = list_of(source.params[0] if source.params else DYN)
    elif node.kind in ("map", "transformList"):
        result = list_of(steps[-1].type)
    elif node.kind == "transformMap":
        result = map_of(key, steps[-1].type)
    else:
        result = BOOL
    # A round costs as many steps as its body has parts; those of macros inside pay by themselves.
    cost, waiting = 0, list(node.steps)
    while waiting:
        part = waiting.pop()
        cost += 1
        inner = (part.operand,) if isinstance(part, syntax.Macro) else syntax.children_of(part)
        waiting.extend(inner)
    return Code(result, _MAKERS[node.kind](_Walk(operand.run, tuple(slots), cost), runs))


def _deciding(walk: _Walk, holds: Run, *, deciding: bool) -> Run:
    """Walk until the first round that decides; it makes up for rounds that failed."""

    def decide(frame: Frame) -> bool:
        failure: EvaluationFailed | None = None
        for _ in walk.rounds(frame):
            try:
                if holds(frame) is deciding:
                    return deciding
            except EvaluationFailed as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return not deciding

    return decide


def _map(walk: _Walk, steps: Sequence[Run]) -> Run:
    *conditions, value = steps

    def run(frame: Frame) -> list[Any]:
        return [
            value(frame)
            for _ in walk.rounds(frame)
            if all(condition(frame) for condition in conditions)
        ]

    return run


def _transform_map(walk: _Walk, steps: Sequence[Run]) -> Run:
    *conditions, value = steps

    def run(frame: Frame) -> dict[Any, Any]:
        return {
            key: value(frame)
            for key in walk.rounds(frame)
            if all(condition(frame) for condition in conditions)
        }

    return run


def _sort_by(walk: _Walk, steps: Sequence[Run]) -> Run:
    (key,) = steps

    def run(frame: Frame) -> list[Any]:
        keyed = [(key(frame), each) for each in walk.rounds(frame)]
        try:
            return [each for _, each in sorted(keyed, key=lambda pair: pair[0])]
        except TypeError as error:
            raise no_overload() from error

    return run


def _exactly_one(walk: _Walk, steps: Sequence[Run]) -> Run:
    (holds,) = steps
    return lambda frame: sum(1 for _ in walk.rounds(frame) if holds(frame)) == 1


def _filter(walk: _Walk, steps: Sequence[Run]) -> Run:
    (holds,) = steps
    return lambda frame: [each for each in walk.rounds(frame) if holds(frame)]


_MAKERS: Final[Mapping[str, _Make]] = {
    "all": lambda walk, steps: _deciding(walk, steps[0], deciding=False),
    "exists": lambda walk, steps: _deciding(walk, steps[0], deciding=True),
    "exists_one": _exactly_one,
    "existsOne": _exactly_one,
    "filter": _filter,
    "map": _map,
    "transformList": _map,
    "transformMap": _transform_map,
    "sortBy": _sort_by,
}


def _optional_code(compiler: Compiler, node: syntax.Macro, operand: Code) -> Code:
    """Compile a step that is taken only with a value that is there."""
    if operand.type.name != OPTIONAL and not is_loose(operand.type):
        why = f"found no matching overload for '{node.kind}' applied to '{operand.type}.()'"
        return compiler.fault(node.at, why)
    inner = operand.type.params[0] if operand.type.params else DYN
    with compiler.variables({node.variables[0]: inner}) as slots:
        step = compiler.code(node.steps[0])
    slot, source, is_flat = slots[0], operand.run, node.kind == "optFlatMap"

    def run(frame: Frame) -> Any:
        optional = source(frame)
        if not isinstance(optional, Optional):
            raise no_overload()
        if not optional.is_present:
            return NONE
        frame.slots[slot] = optional.content
        value = step.run(frame)
        return value if is_flat else Optional(value, is_present=True)

    return Code(step.type if is_flat else optional_of(step.type), run)
