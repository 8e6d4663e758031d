"""The tree to a program: names and types checked, functions chosen, all faults told at once."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from clusterspace.kube.cel import comprehensions, syntax
from clusterspace.kube.cel.calls import call_code
from clusterspace.kube.cel.faults import CompileFailed, EvaluationFailed, Fault, no_overload
from clusterspace.kube.cel.libraries.catalog import FUNCTIONS
from clusterspace.kube.cel.libraries.operators import TYPE_NAMES, value_of
from clusterspace.kube.cel.parser import parse
from clusterspace.kube.cel.programs import Code, Frame, Program, Run
from clusterspace.kube.cel.syntax import Node
from clusterspace.kube.cel.types import (
    BOOL,
    DYN,
    MAP,
    OPTIONAL,
    TYPE,
    UNKNOWN,
    Type,
    fits,
    is_loose,
    joined,
    list_of,
    map_of,
    optional_of,
)
from clusterspace.kube.cel.values import NONE, Optional
from clusterspace.kube.objects import Object

_CHECKED_LITERALS: Final = ("matches", "duration", "timestamp")
"""Functions whose last argument, when written out, must be one they can read."""


def compile_expression(text: str, variables: Mapping[str, Type]) -> Program:
    """Return the program of an expression about these variables; CompileFailed if there is none."""
    compiler = Compiler(variables)
    code = compiler.code(parse(text))
    if compiler.faults:
        raise CompileFailed(text, compiler.faults)
    slots = {name: index for index, name in enumerate(variables)}
    return Program(text, code, slots, compiler.slot_count, frozenset(compiler.used))


class Compiler:
    """One pass over a tree."""

    def __init__(self, variables: Mapping[str, Type]) -> None:
        self.faults: list[Fault] = []
        self.used: set[str] = set()
        self.slot_count = len(variables)
        self._may_mix = False
        self._scope = {name: (slot, held) for slot, (name, held) in enumerate(variables.items())}

    def code(self, node: Node) -> Code:
        """Compile a node; what has a fault gets a type that fits everywhere."""
        match node:
            case syntax.Literal():
                value = node.value
                return Code(node.type, lambda _: value)
            case syntax.Name():
                return self._name(node)
            case syntax.Select():
                return self._select(node)
            case syntax.Has():
                return self._has(node)
            case syntax.Call():
                return self._call(node)
            case syntax.Junction():
                return self._junction(node)
            case syntax.ListLiteral():
                return self._list(node)
            case syntax.MapLiteral():
                return self._map(node)
            case syntax.Macro():
                return comprehensions.macro_code(self, node)

    def fault(self, at: int, message: str) -> Code:
        """Remember a fault and go on."""
        self.faults.append(Fault(at, message))
        return Code(UNKNOWN, _never)

    def truth(self, code: Code, at: int, function: str, others: Sequence[Type] = ()) -> Run:
        """Return how to get true or false from a part that must be one of them."""
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
        for slot, (name, held) in zip(slots, named.items(), strict=True):
            self._scope[name] = (slot, held)
        yield slots
        self._scope = outer

    def _name(self, node: syntax.Name) -> Code:
        known = self._scope.get(node.name)
        if known is not None:
            slot, held = known
            self.used.add(node.name)
            return Code(held, lambda frame: frame.slots[slot])
        if node.name in TYPE_NAMES:
            value = TYPE_NAMES[node.name]
            return Code(Type(TYPE), lambda _: value)
        return self.fault(node.at, _UNDECLARED.format(node.name))

    def _select(self, node: syntax.Select) -> Code:
        operand = self.code(node.operand)
        is_optional = operand.type.name == OPTIONAL
        inner = operand.type.params[0] if is_optional else operand.type
        found = self._field(inner, node.field, node.at)
        if is_optional or node.is_optional:
            return Code(optional_of(found[1]), _optional_selection(operand.run, found[0]))
        return Code(found[1], _selection(operand.run, found[0]))

    def _has(self, node: syntax.Has) -> Code:
        operand = self.code(node.operand)
        inner = operand.type.params[0] if operand.type.name == OPTIONAL else operand.type
        name, _ = self._field(inner, node.field, node.at)
        return Code(BOOL, _presence(operand.run, name))

    def _field(self, held: Type, name: str, at: int) -> tuple[str, Type]:
        """Return what the field is called in the object, and its type."""
        if is_loose(held):
            return name, DYN
        if held.name == MAP:
            return name, held.params[1]
        if held.fields is None:
            self.fault(at, f"type '{held}' does not support field selection")
        elif name not in held.fields:
            self.fault(at, f"undefined field '{name}'")
        else:
            return held.fields[name].name, held.fields[name].type
        return name, UNKNOWN

    def _call(self, node: syntax.Call) -> Code:
        if node.function == syntax.CHOICE:
            return self._choice(node)
        name, target = self._function_of(node)
        given = node.args if target is None else (target, *node.args)
        args = [self._arg(name, each) for each in given]
        if name not in FUNCTIONS:
            return self.fault(node.at, _UNDECLARED.format(name))
        overloads = [each for each in FUNCTIONS[name] if each.is_method == (target is not None)]
        code = call_code(overloads, args)
        if code is None:
            listed = ", ".join(str(each.type) for each in args[target is not None :])
            applied = f"({listed})" if target is None else f"{args[0].type}.({listed})"
            return self.fault(node.at, _NO_OVERLOAD.format(name, applied))
        if name in _CHECKED_LITERALS:
            self._check_literal(name, node.args[-1])
        return code

    def _arg(self, function: str, node: Node) -> Code:
        """Compile an argument; what is written into a text need not be of one kind."""
        outer, self._may_mix = self._may_mix, self._may_mix or function == "format"
        code = self.code(node)
        self._may_mix = outer
        return code

    def _function_of(self, node: syntax.Call) -> tuple[str, Node | None]:
        """Return the function's name and receiver: `sets.contains` is a name, not a method."""
        if isinstance(node.target, syntax.Name) and node.target.name not in self._scope:
            qualified = f"{node.target.name}.{node.function}"
            if qualified in FUNCTIONS:
                return qualified, None
        return node.function, node.target

    def _check_literal(self, name: str, arg: Node) -> None:
        if not isinstance(arg, syntax.Literal) or self.faults:
            return
        try:
            # A pattern is read before the text it is held against, so any text will do.
            overload = FUNCTIONS[name][0]
            overload.run(*([""] if len(overload.args) > 1 else []), arg.value)
        except EvaluationFailed:
            self.fault(arg.at, f"invalid {name} argument")

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
        return Code(BOOL, _decision(runs, deciding=node.function == syntax.OR))

    def _list(self, node: syntax.ListLiteral) -> Code:
        codes = [self.code(element) for element in node.elements]
        runs = [code.run for code in codes]
        element = self._common(codes, [each.at for each in node.elements])
        return Code(list_of(element), lambda frame: [run(frame) for run in runs])

    def _map(self, node: syntax.MapLiteral) -> Code:
        keys = [self.code(key) for key, _ in node.entries]
        values = [self.code(value) for _, value in node.entries]
        key_type = self._common(keys, [key.at for key, _ in node.entries])
        value_type = self._common(values, [value.at for _, value in node.entries])
        runs = [(key.run, value.run) for key, value in zip(keys, values, strict=True)]
        held = map_of(key_type, value_type)
        return Code(held, lambda frame: {key(frame): value(frame) for key, value in runs})

    def _common(self, codes: Sequence[Code], places: Sequence[int]) -> Type:
        """Return the one type that all have; elements of a literal are all alike."""
        common: Type | None = None
        for code, at in zip(codes, places, strict=True):
            both = code.type if common is None else joined(common, code.type)
            if both is None and self._may_mix:
                common = DYN
            elif both is None:
                self.fault(at, f"expected type '{common}' but found '{code.type}'")
            else:
                common = both
        return DYN if common is None else common


_NO_OVERLOAD: Final = "found no matching overload for '{}' applied to '{}'"
_UNDECLARED: Final = "undeclared reference to '{}' (in container '')"


def _never(_: Frame) -> Any:
    raise no_overload()


def _checked_truth(run: Run) -> Run:
    def check(frame: Frame) -> bool:
        value = run(frame)
        if not isinstance(value, bool):
            raise no_overload()
        return value

    return check


def _decision(runs: Sequence[Run], *, deciding: bool) -> Run:
    """Return how to join truths: one that decides makes up for terms that have no value."""

    def decide(frame: Frame) -> bool:
        failure: EvaluationFailed | None = None
        for run in runs:
            try:
                if run(frame) is deciding:
                    return deciding
            except EvaluationFailed as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return not deciding

    return decide


def _selection(operand: Run, name: str) -> Run:
    def select(frame: Frame) -> Any:
        held = operand(frame)
        if not isinstance(held, dict):
            raise EvaluationFailed(f"no such key: {name}") if held is None else no_overload()
        return value_of(cast("Object", held), name)

    return select


def _optional_selection(operand: Run, name: str) -> Run:
    def select(frame: Frame) -> Optional:
        held = _fields_in(operand(frame))
        return Optional(held[name], is_there=True) if name in held else NONE

    return select


def _presence(operand: Run, name: str) -> Run:
    def has(frame: Frame) -> bool:
        return name in _fields_in(operand(frame))

    return has


def _fields_in(value: Any) -> Object:
    """Return the fields of an object, or of one that may be missing; none of anything else."""
    held = value.held if isinstance(value, Optional) else value
    return cast("Object", held) if isinstance(held, dict) else {}
