"""Text to tokens, and tokens to the syntax tree, by precedence; macros are recognised here.

https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusterspace.kube.cel import syntax
from clusterspace.kube.cel.syntax import CompileFailed, Fault, Node
from clusterspace.kube.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, NULL, STRING, UINT, Type
from clusterspace.kube.cel.values import INT_RANGE, UINT_RANGE, Uint

LONGEST: Final = 100_000
"""How many characters an expression may have."""

NAME: Final = "name"
SIGN: Final = "sign"
LITERAL: Final = "literal"
END: Final = "end"

_TOKEN: Final = re.compile(
    r"""(?P<space>[\t\n\f\r\ ]+|//[^\n]*)
    |(?P<raw>(?:[rR][bB]?|[bB][rR])
        (?:\"\"\".*?\"\"\"|\'\'\'.*?\'\'\'|"[^"\n\r]*"|'[^'\n\r]*'))
    |(?P<text>[bB]?
        (?:\"\"\"(?:\\.|[^\\])*?\"\"\"|\'\'\'(?:\\.|[^\\])*?\'\'\'
          |"(?:\\.|[^\\"\n\r])*"|'(?:\\.|[^\\'\n\r])*'))
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<int>(?:0[xX][0-9a-fA-F]+|[0-9]+))(?P<unsigned>[uU])?
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    |(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-3][0-7]{2})|(?P<plain>.))",
    re.DOTALL,
)
_PLAIN_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{character: character for character in "\\?\"'`"},
}

RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
"""Words CEL keeps for later: no name may be one."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token; a literal has its value and type."""

    kind: str
    text: str
    at: int
    value: Any = None
    type: Type = DYN

    def is_sign(self, *signs: str) -> bool:
        """Tell whether this is one of the signs."""
        return self.kind == SIGN and self.text in signs


def read_tokens(text: str) -> list[Token]:
    """Return the tokens, the end included; CompileFailed for what is none."""
    if len(text) > LONGEST:
        why = f"expression code point size exceeds limit: size: {len(text)}, limit {LONGEST}"
        raise CompileFailed("", [Fault(0, why)])
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            # An open quote takes the rest of its line with it.
            rest = text[at:].split("\n")[0] if text[at] in "\"'" else text[at]
            fault = Fault(at, f"Syntax error: token recognition error at: '{rest}'")
            raise CompileFailed(text, [fault])
        if found["name"]:
            tokens.append(Token(NAME, found[0], at))
        elif found["sign"]:
            tokens.append(Token(SIGN, found[0], at))
        elif found["float"]:
            tokens.append(Token(LITERAL, found[0], at, float(found[0]), DOUBLE))
        elif found["int"]:
            tokens.append(_integer(found, text))
        elif found["space"] is None:
            tokens.append(_quoted(found, text))
        at = found.end()
    return [*tokens, Token(END, "<EOF>", len(text))]


def _integer(found: re.Match[str], text: str) -> Token:
    digits = found["int"]
    number = int(digits, 16 if digits[:2] in ("0x", "0X") else 10)
    allowed = UINT_RANGE if found["unsigned"] else INT_RANGE
    # The smallest integer is written as the negation of one that is too large.
    if number not in allowed and not (allowed is INT_RANGE and number == allowed.stop):
        kind = "uint" if found["unsigned"] else "int"
        fault = Fault(found.start(), f"Syntax error: invalid {kind} literal")
        raise CompileFailed(text, [fault])
    if found["unsigned"]:
        return Token(LITERAL, found[0], found.start(), Uint(number), UINT)
    return Token(LITERAL, found[0], found.start(), number, INT)


_BYTE_MARK: Final = 0xDC00
"""Lone surrogates stand for single bytes until a bytes literal is put together."""


def _quoted(found: re.Match[str], text: str) -> Token:
    quoted = found[0].lstrip("rRbB")
    is_bytes = "b" in found[0][: -len(quoted)].lower()
    width = 3 if quoted[:3] in ('"""', "'''") else 1
    inner = quoted[width:-width]

    def unescape(escape: re.Match[str]) -> str:
        octal_or_hex = escape["x"] or escape["octal"]
        if octal_or_hex:
            number = int(octal_or_hex, 16 if escape["x"] else 8)
            return chr(_BYTE_MARK + number) if is_bytes else chr(number)
        code = escape["u"] or escape["U"]
        if code and int(code, 16) <= 0x10FFFF and not 0xD800 <= int(code, 16) < 0xE000:
            return chr(int(code, 16))
        if escape["plain"] in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[escape["plain"]]
        fault = Fault(found.start(), f"Syntax error: invalid escape {escape[0]!r}")
        raise CompileFailed(text, [fault])

    if found["raw"] is None:
        inner = _ESCAPE.sub(unescape, inner)
    if not is_bytes:
        return Token(LITERAL, found[0], found.start(), inner, STRING)
    numbers = ((character, ord(character) - _BYTE_MARK) for character in inner)
    value = b"".join(
        bytes([number]) if 0 <= number < 256 else character.encode()
        for character, number in numbers
    )
    return Token(LITERAL, found[0], found.start(), value, BYTES)


DEEPEST: Final = 80
"""How deep an expression may nest: deeper than any rule does, far from the interpreter's limit."""

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
    tree = parser.whole()
    # The parser counts its own recursion. Chains such as `a.b.c` and `1 + 1 + 1` are read in loops
    # and make deep trees all the same, which the compiler and the program walk by recursion.
    if syntax.depth_of(tree) > DEEPEST:
        raise CompileFailed(text, [Fault(0, f"expression is nested more than {DEEPEST} deep")])
    return tree


def _type_name(node: Node) -> str:
    """Return the dotted name that a chain of fields spells; empty when it is something else."""
    match node:
        case syntax.Name():
            return node.name
        case syntax.Select(is_optional=False):
            outer = _type_name(node.operand)
            return f"{outer}.{node.field}" if outer else ""
        case _:
            return ""


class _Parser:
    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._index = 0
        self._depth = 0

    def whole(self) -> Node:
        """Read an expression and refuse anything after it."""
        tree = self.expression()
        left = self._peek()
        if left.kind != END:
            why = f"Syntax error: extraneous input '{left.text}' expecting <EOF>"
            raise self._fault(left.at, why)
        return tree

    def expression(self) -> Node:
        """Read an expression with its `? :`."""
        self._deeper(self._peek().at)
        condition = self._binary(1)
        if self._peek().is_sign("?"):
            sign = self._take()
            yes = self._binary(1)
            self._expect(":")
            no = self.expression()
            condition = syntax.Call(syntax.CHOICE, None, (condition, yes, no), sign.at)
        self._depth -= 1
        return condition

    def _binary(self, lowest: int) -> Node:
        left = self._unary()
        while True:
            sign = self._peek()
            precedence = _PRECEDENCE.get(sign.text, 0) if sign.kind != LITERAL else 0
            if precedence < lowest or precedence == 0:
                return left
            if sign.text in _JUNCTIONS:
                # A chain of the same sign is one node, so that long chains are not deep.
                terms, signs = [left], list[int]()
                while self._peek().is_sign(sign.text):
                    signs.append(self._take().at)
                    terms.append(self._binary(precedence + 1))
                function = _JUNCTIONS[sign.text]
                left = syntax.Junction(function, tuple(terms), tuple(signs), signs[0])
                continue
            self._take()
            # Only what binds more tightly belongs to the right: `a - b - c` is `(a - b) - c`.
            right = self._binary(precedence + 1)
            function = "@in" if sign.text == "in" else f"_{sign.text}_"
            left = syntax.Call(function, None, (left, right), sign.at)

    def _unary(self) -> Node:
        sign = self._peek()
        if not sign.is_sign("!", "-"):
            return self._members(self._primary())
        self._take()
        following = self._peek()
        if sign.text == "-" and following.kind == LITERAL and following.type in (INT, DOUBLE):
            number = self._take()
            return self._members(syntax.Literal(-number.value, number.type, sign.at))
        self._deeper(sign.at)
        operand = self._unary()
        self._depth -= 1
        return syntax.Call(f"{sign.text}_", None, (operand,), sign.at)

    def _members(self, operand: Node) -> Node:
        """Read what follows an operand: fields, calls of methods and indexes."""
        while self._peek().is_sign(".", "[", "{"):
            if self._peek().is_sign("{"):
                name = _type_name(operand)
                if not name:
                    return operand  # for whoever comes next to refuse
                operand = self._struct(name)
                continue
            sign = self._take()
            is_optional = self._peek().is_sign("?")
            if is_optional:
                self._take()
            if sign.text == "[":
                index = self.expression()
                self._expect("]")
                function = "_[?_]" if is_optional else syntax.INDEX
                operand = syntax.Call(function, None, (operand, index), sign.at)
                continue
            name = self._take()
            if name.kind != NAME:
                why = f"Syntax error: no viable alternative at input '.{name.text}'"
                raise self._fault(name.at, why)
            if self._peek().is_sign("(") and not is_optional:
                opening = self._take()
                operand = self._method(operand, name, self._list_until(")"), opening.at)
            else:
                operand = syntax.Select(operand, name.text, sign.at, is_optional=is_optional)
        return operand

    def _struct(self, name: str) -> Node:
        """Read the fields of an object that is written out."""
        opening, fields = self._take(), list[tuple[str, int, Node]]()
        while not self._peek().is_sign("}"):
            field = self._take()
            if field.kind != NAME:
                why = f"Syntax error: mismatched input '{field.text}' expecting IDENTIFIER"
                raise self._fault(field.at, why)
            colon = self._peek().at
            self._expect(":")
            fields.append((field.text, colon, self.expression()))
            if not self._peek().is_sign(","):
                break
            self._take()
        self._expect("}")
        return syntax.StructLiteral(name, tuple(fields), opening.at)

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
            if token.type == INT and token.value not in INT_RANGE:
                raise self._fault(token.at, "Syntax error: invalid int literal")
            return syntax.Literal(token.value, token.type, token.at)
        if token.kind == NAME and token.text != "in":
            return self._name(token)
        if token.is_sign("("):
            inner = self.expression()
            self._expect(")")
            return inner
        if token.is_sign("["):
            return syntax.ListLiteral(self._list_until("]"), token.at)
        if token.is_sign("{"):
            entries: list[tuple[Node, Node]] = []
            while not self._peek().is_sign("}"):
                key = self.expression()
                self._expect(":")
                entries.append((key, self.expression()))
                if not self._peek().is_sign(","):
                    break
                self._take()
            self._expect("}")
            return syntax.MapLiteral(tuple(entries), token.at)
        if token.is_sign(".") and self._peek().kind == NAME:
            return self._name(self._take())
        why = f"Syntax error: mismatched input '{token.text}' expecting {_EXPECTED}"
        raise self._fault(token.at, why)

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
        if token.text != "has" or len(args) != 1:
            return syntax.Call(token.text, None, args, opening.at)
        (field,) = args
        if isinstance(field, syntax.Select) and not field.is_optional:
            return syntax.Has(field.operand, field.field, field.at)
        raise self._fault(field.at, "invalid argument to has() macro")

    def _list_until(self, closing: str) -> tuple[Node, ...]:
        elements: list[Node] = []
        while not self._peek().is_sign(closing):
            elements.append(self.expression())
            if not self._peek().is_sign(","):
                break
            self._take()
        self._expect(closing)
        return tuple(elements)

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

    def _deeper(self, at: int) -> None:
        """Count one level down; whoever returns from it counts it up again."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._fault(at, f"expression is nested more than {DEEPEST} deep")

    def _fault(self, at: int, message: str) -> CompileFailed:
        return CompileFailed(self._text, [Fault(at, message)])
