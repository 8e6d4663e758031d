"""Tokens to the tree, by precedence; macros are recognised here.

https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax
"""

from collections.abc import Mapping
from typing import Final

from clusterspace.kube.cel import syntax
from clusterspace.kube.cel.faults import CompileFailed, Fault
from clusterspace.kube.cel.syntax import Node
from clusterspace.kube.cel.tokens import END, LITERAL, NAME, RESERVED, Token, read_tokens
from clusterspace.kube.cel.types import BOOL, DOUBLE, INT, NULL
from clusterspace.kube.cel.values import INT_RANGE

DEEPEST: Final = 80
"""How deep an expression may nest: deeper than any rule, far from the interpreter's limit."""

_PRECEDENCE: Final[Mapping[str, int]] = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
_JUNCTIONS: Final = {"||": syntax.OR, "&&": syntax.AND}

# The kinds of macros: how many variables they may name, and how many steps follow.
_MACROS: Final[Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "all": ((1, 2), (1,)),
    "exists": ((1, 2), (1,)),
    "exists_one": ((1,), (1,)),
    "existsOne": ((1, 2), (1,)),
    "filter": ((1,), (1,)),
    "map": ((1,), (1, 2)),
    "transformList": ((2,), (1, 2)),
    "transformMap": ((2,), (1, 2)),
    "sortBy": ((1,), (1,)),
    "optMap": ((1,), (1,)),
    "optFlatMap": ((1,), (1,)),
}

_EXPECTED: Final = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
    "STRING, BYTES, IDENTIFIER}"
)


def parse(text: str) -> Node:
    """Return the tree of an expression; CompileFailed when it is none."""
    parser = _Parser(text, read_tokens(text))
    tree = parser.expression()
    parser.expect_end()
    if syntax.depth_of(tree) > DEEPEST:
        raise CompileFailed(text, [Fault(0, f"expression is nested more than {DEEPEST} deep")])
    return tree


class _Parser:
    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._index = 0
        self._depth = 0

    def expression(self) -> Node:
        """Read an expression with its `? :`."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._fault(self._peek().at, f"expression is nested more than {DEEPEST} deep")
        condition = self._binary(1)
        if self._peek().is_sign("?"):
            sign = self._take()
            yes = self._binary(1)
            self._expect(":")
            no = self.expression()
            condition = syntax.Call(syntax.CHOICE, None, (condition, yes, no), sign.at)
        self._depth -= 1
        return condition

    def expect_end(self) -> None:
        """Refuse anything after the expression."""
        left = self._peek()
        if left.kind != END:
            why = f"Syntax error: extraneous input '{left.text}' expecting <EOF>"
            raise self._fault(left.at, why)

    def _binary(self, lowest: int) -> Node:
        left = self._unary()
        while True:
            sign = self._peek()
            precedence = _PRECEDENCE.get(sign.text, 0) if sign.kind != LITERAL else 0
            if precedence < lowest or precedence == 0:
                return left
            if sign.text in _JUNCTIONS:
                left = self._junction(left, sign.text, precedence)
                continue
            self._take()
            right = self._binary(precedence + 1)
            function = "@in" if sign.text == "in" else f"_{sign.text}_"
            left = syntax.Call(function, None, (left, right), sign.at)

    def _junction(self, first: Node, sign: str, precedence: int) -> Node:
        """Read a chain of the same sign as one node, so that long chains are not deep."""
        terms, signs = [first], list[int]()
        while self._peek().is_sign(sign):
            signs.append(self._take().at)
            terms.append(self._binary(precedence + 1))
        return syntax.Junction(_JUNCTIONS[sign], tuple(terms), tuple(signs), signs[0])

    def _unary(self) -> Node:
        sign = self._peek()
        if not sign.is_sign("!", "-"):
            return self._member()
        self._take()
        following = self._peek()
        if sign.text == "-" and following.kind == LITERAL and _is_number(following):
            return self._members(self._negative(self._take(), sign.at))
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._fault(sign.at, f"expression is nested more than {DEEPEST} deep")
        operand = self._unary()
        self._depth -= 1
        return syntax.Call(f"{sign.text}_", None, (operand,), sign.at)

    def _negative(self, token: Token, at: int) -> Node:
        return syntax.Literal(-token.value, token.type, at)

    def _member(self) -> Node:
        return self._members(self._primary())

    def _members(self, operand: Node) -> Node:
        while True:
            sign = self._peek()
            if sign.is_sign("."):
                operand = self._dot(operand)
            elif sign.is_sign("["):
                operand = self._index_of(operand)
            else:
                return operand

    def _dot(self, operand: Node) -> Node:
        dot = self._take()
        is_optional = self._peek().is_sign("?")
        if is_optional:
            self._take()
        name = self._take()
        if name.kind != NAME:
            why = f"Syntax error: no viable alternative at input '.{name.text}'"
            raise self._fault(name.at, why)
        if self._peek().is_sign("(") and not is_optional:
            opening = self._take()
            return self._method(operand, name, self._list_until(")"), opening.at)
        return syntax.Select(operand, name.text, dot.at, is_optional=is_optional)

    def _index_of(self, operand: Node) -> Node:
        opening = self._take()
        is_optional = self._peek().is_sign("?")
        if is_optional:
            self._take()
        index = self.expression()
        self._expect("]")
        function = "_[?_]" if is_optional else syntax.INDEX
        return syntax.Call(function, None, (operand, index), opening.at)

    def _method(self, target: Node, name: Token, args: tuple[Node, ...], at: int) -> Node:
        shape = _MACROS.get(name.text)
        if shape is None:
            return syntax.Call(name.text, target, args, at)
        for count in sorted(shape[0], reverse=True):
            names = [each.name for each in args[:count] if isinstance(each, syntax.Name)]
            if len(args) - count in shape[1] and len(names) == count:
                return syntax.Macro(name.text, target, tuple(names), args[count:], at)
        if any(len(args) - count in shape[1] for count in shape[0]):
            raise self._fault(args[0].at, "argument must be a simple name")
        return syntax.Call(name.text, target, args, at)

    def _primary(self) -> Node:
        token = self._take()
        if token.kind == LITERAL:
            return self._literal(token)
        if token.kind == NAME and token.text != "in":
            return self._name(token)
        if token.is_sign("("):
            inner = self.expression()
            self._expect(")")
            return inner
        if token.is_sign("["):
            return syntax.ListLiteral(self._list_until("]"), token.at)
        if token.is_sign("{"):
            return self._map(token)
        if token.is_sign(".") and self._peek().kind == NAME:
            return self._name(self._take())
        why = f"Syntax error: mismatched input '{token.text}' expecting {_EXPECTED}"
        raise self._fault(token.at, why)

    def _literal(self, token: Token) -> Node:
        if token.type == INT and token.value not in INT_RANGE:
            raise self._fault(token.at, "Syntax error: invalid int literal")
        return syntax.Literal(token.value, token.type, token.at)

    def _name(self, token: Token) -> Node:
        if token.text in ("true", "false"):
            return syntax.Literal(token.text == "true", BOOL, token.at)
        if token.text == "null":
            return syntax.Literal(None, NULL, token.at)
        if token.text in RESERVED:
            raise self._fault(token.at, f"reserved identifier: {token.text}")
        if not self._peek().is_sign("("):
            return syntax.Name(token.text, token.at)
        opening = self._take()
        args = self._list_until(")")
        if token.text == "has" and len(args) == 1:
            return self._has(args[0])
        return syntax.Call(token.text, None, args, opening.at)

    def _has(self, arg: Node) -> Node:
        if isinstance(arg, syntax.Select) and not arg.is_optional:
            return syntax.Has(arg.operand, arg.field, arg.at)
        raise self._fault(arg.at, "invalid argument to has() macro")

    def _list_until(self, closing: str) -> tuple[Node, ...]:
        elements: list[Node] = []
        while not self._peek().is_sign(closing):
            elements.append(self.expression())
            if not self._peek().is_sign(","):
                break
            self._take()
        self._expect(closing)
        return tuple(elements)

    def _map(self, opening: Token) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self._peek().is_sign("}"):
            key = self.expression()
            self._expect(":")
            entries.append((key, self.expression()))
            if not self._peek().is_sign(","):
                break
            self._take()
        self._expect("}")
        return syntax.MapLiteral(tuple(entries), opening.at)

    def _peek(self) -> Token:
        return self._tokens[self._index]

    def _take(self) -> Token:
        taken = self._tokens[self._index]
        if taken.kind != END:
            self._index += 1
        return taken

    def _expect(self, sign: str) -> None:
        found = self._take()
        if not found.is_sign(sign):
            raise self._fault(found.at, f"Syntax error: missing '{sign}' at '{found.text}'")

    def _fault(self, at: int, message: str) -> CompileFailed:
        return CompileFailed(self._text, [Fault(at, message)])


def _is_number(token: Token) -> bool:
    return token.type in (INT, DOUBLE)
