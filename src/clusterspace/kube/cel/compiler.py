"""The tree to a program: names and types checked, functions chosen, all faults reported."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from clusterspace.kube.cel import macros, syntax
from clusterspace.kube.cel.libraries import FUNCTIONS
from clusterspace.kube.cel.libraries.standard import TYPE_NAMES, value_of
from clusterspace.kube.cel.parser import parse
from clusterspace.kube.cel.programs import Code, Frame, Program, Run, call_code
from clusterspace.kube.cel.syntax import CompileFailed, Fault, Node
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
from clusterspace.kube.cel.values import NONE, EvaluationFailed, Optional, no_overload
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
    """One pass over a tree.

    Variables live in numbered slots of the frame a program runs in: those of the expression come
    first, and each macro adds slots for its own. A slot is never given away again, so that a macro
    inside another cannot overwrite the variables of the outer one: in
    `self.a.all(x, self.b.all(y, x < y))` self has slot 0, oldSelf 1, x 2 and y 3.
    """

    def __init__(self, variables: Mapping[str, Type]) -> None:
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
            case syntax.Macro():
                return macros.macro_code(self, node)

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
        code = call_code(overloads, args)
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


def _fields_in(value: Any) -> Object:
    """Return the fields of an object, or of one that may be missing; none of anything else."""
    content = value.content if isinstance(value, Optional) else value
    return cast("Object", content) if isinstance(content, dict) else {}
