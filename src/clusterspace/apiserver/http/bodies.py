"""What clients send, read once: JSON, YAML or Kubernetes protobuf to a plain object.

Size is limited before anything is parsed; depth, the number of parts and alias expansion while
parsing: a body of three megabytes must not cost more than a body of three megabytes.

The usual JSON decoder is ten times as quick as steps of Python and does all of it in one call,
which nothing interrupts: three megabytes of empty lists, or of numbers like 1e-300, stop the
process for most of a second. Small bodies go there; one that `is_large` is read off the loop, and
each token is one step, parts are counted as they come, and keys that come twice are noted.

The usual YAML loaders recurse in C for every level of nesting, and a body of a few hundred
kilobytes of `[` ends the process. Here YAML is read from parser events, without recursion. Aliases
are refused: they are how a small text becomes a huge value.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
import yaml

from clusterspace.apiserver.http.request_info import JSON, PROTOBUF, YAML
from clusterspace.errors import BadRequest
from clusterspace.kube import statuses
from clusterspace.kube.json_errors import describe_json_error
from clusterspace.kube.protobuf.bodies import decode as decode_protobuf
from clusterspace.kube.shapes import Parts

BODY_LIMIT: Final = 3 * 1024 * 1024
"""As kube-apiserver: what fits into one etcd request, doubled."""

_SMALL_BYTES: Final = 64 * 1024
_SMALL_VALUES: Final = 1_000
"""What is worked on in the loop's own time: a thousand parts are 10 to 30 ms from body to store.
A Deployment as kubectl sends it has 150, a Pod with all its owners of fields 500."""

_SMALL_YAML_BYTES: Final = 8 * 1024
"""YAML has no signs that must be there, and costs ten times as much as JSON."""

_SMALL_PROTOBUF_BYTES: Final = 4 * 1024
"""Two bytes can be a message, and a message a dozen fields that are always there."""

_ACCEPTED: Final = (JSON, YAML, PROTOBUF)


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body, and what was said twice in it."""

    value: Any
    duplicates: tuple[str, ...] = ()
    """Paths of keys that came more than once in JSON; the last one won."""
    duplicate_lines: tuple[str, ...] = ()
    """The same of YAML, as Kubernetes says it: `line 9: key "foo" already set in map`."""


class _DuplicateKey(Exception):
    """Raised to leave the fast path as soon as a key comes twice."""


class _Marked(dict[str, Any]):
    """An object that remembers which of its keys came twice."""

    twice: tuple[str, ...] = ()


def media_type_of(content_type: str) -> str:
    """Return the bare media type; a body without one is JSON, as Kubernetes takes it."""
    return content_type.partition(";")[0].strip().lower() or JSON


def is_large(raw: bytes, media_type: str = JSON) -> bool:
    """Whether a body, or an object as it is stored, may take longer than the loop should wait.

    An estimate from above that takes microseconds: signs inside texts count too.
    """
    if media_type == PROTOBUF:
        return len(raw) > _SMALL_PROTOBUF_BYTES
    if "yaml" in media_type and raw[:1] not in (b"{", b"["):
        return len(raw) > _SMALL_YAML_BYTES
    if len(raw) <= _SMALL_VALUES:
        return False
    if len(raw) > _SMALL_BYTES:
        return True
    return raw.count(b",") + raw.count(b"{") + raw.count(b"[") > _SMALL_VALUES


def read_body(raw: bytes, content_type: str, *, expected_kind: str = "") -> Body:
    """Decode a body by its content type; raise BadRequest or UnsupportedMediaType."""
    media_type = media_type_of(content_type)
    if media_type == JSON:
        return read_json(raw, expected_kind=expected_kind)
    if media_type == YAML:
        return read_yaml(raw)
    if media_type == PROTOBUF:
        return Body(decode_protobuf(raw))
    raise statuses.unsupported_media_type(_ACCEPTED)


def read_json(raw: bytes, *, expected_kind: str = "") -> Body:
    """Decode JSON strictly: no NaN, no trailing text, no nesting beyond the decoder's limit."""
    if is_large(raw):
        try:
            return Body(*compose_json(raw, max_depth=MAX_DEPTH))
        except NotJson as error:
            why = "a number or a text in the body has no meaning"
            raise BadRequest(_unreadable(raw, expected_kind, why)) from error
        except TooDeep as error:
            raise _too_deep() from error
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(_unreadable(raw, expected_kind, str(error))) from error
    except RecursionError as error:
        raise _too_deep() from error
    _refuse_depth(raw, value)
    if _has_every_key(raw, value):
        return Body(value)
    return Body(value, tuple(_duplicates_in_json(raw)))


def refuse_shape(raw: bytes, media_type: str) -> None:
    """Refuse a body of more parts than one object may have, for those who only pass it on.

    What is not JSON is not refused here: where it goes wrong is told by whoever reads it.
    """
    is_json = media_type not in (YAML, PROTOBUF) and raw[:1] in (b"{", b"[")
    if is_json and is_large(raw):
        with suppress(NotJson, TooDeep):
            compose_json(raw, max_depth=MAX_DEPTH)


def _too_deep() -> BadRequest:
    return BadRequest(f"the body is nested more than {MAX_DEPTH} levels deep")


def _refuse_depth(raw: bytes, value: Any) -> None:
    """Refuse what is nested too deeply for those who walk it by recursion, behind us."""
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                below += cast("list[Any]", each)
        if not below:
            return
        level = below
    raise _too_deep()


def _unreadable(raw: bytes, expected_kind: str, otherwise: str) -> str:
    reason = describe_json_error(raw) or otherwise
    if not expected_kind:
        return reason
    shown = raw[:200].decode("utf-8", "replace")
    return (
        f"the object provided is unrecognized (must be of type {expected_kind}): "
        f"couldn't get version/kind; json parse error: {reason} ({shown})"
    )


def _has_every_key(raw: bytes, value: Any) -> bool:
    """Whether what was decoded has as many keys as were sent, so that none came twice.

    False says nothing: then it is read again, with an eye on every key, for many times the price.
    """
    # Where no colon follows a blank, each key in the body ends in `":`, and what texts have of
    # these only adds to them: as many as there are keys in the objects means that none was dropped.
    if b" :" in raw or b"\t:" in raw or b"\n:" in raw or b"\r:" in raw:
        return False
    return raw.count(b'":') == _count_keys(value)


def _count_keys(value: Any) -> int:
    keys, parts = 0, cast("list[Any]", value)
    if isinstance(value, dict):
        named = cast("dict[str, Any]", value)
        keys, parts = len(named), named.values()
    elif not isinstance(value, list):
        return 0
    for each in parts:
        if type(each) is dict or type(each) is list:
            keys += _count_keys(each)
    return keys


def _duplicates_in_json(raw: bytes) -> Iterator[str]:
    """Name keys that come twice in one object, by a second pass only when there are any."""

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) != len(pairs):
            raise _DuplicateKey

    def mark_duplicates(pairs: list[tuple[str, Any]]) -> _Marked:
        marked = _Marked(pairs)
        counts = Counter(key for key, _ in pairs)
        marked.twice = tuple(key for key, count in counts.items() if count > 1)
        return marked

    try:
        json.loads(raw, object_pairs_hook=refuse_duplicates)
    except _DuplicateKey:
        marked = json.loads(raw, object_pairs_hook=mark_duplicates)
        yield from _paths_of_duplicates(marked, "")
    except RecursionError as error:
        raise _too_deep() from error


def _paths_of_duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _paths_of_duplicates(item, f"{path}[{index}]")
    elif isinstance(value, _Marked):
        for key in value.twice:
            yield f"{path}.{key}".lstrip(".")
        for key, item in value.items():
            yield from _paths_of_duplicates(item, f"{path}.{key}".lstrip("."))


def read_yaml(raw: bytes) -> Body:
    """Decode one YAML document into JSON's types."""
    if raw[:1] in (b"{", b"["):
        # Apply sends JSON under YAML's media type; JSON's own decoder is quicker and stricter.
        try:
            body = read_json(raw)
        except BadRequest:
            pass
        else:
            if not body.duplicates:
                return body
    try:
        value, duplicate_lines = compose_yaml(raw)
    except YamlFault as fault:
        raise BadRequest(f"error converting YAML to JSON: yaml: {fault}") from fault
    return Body(value, duplicate_lines=duplicate_lines)


# -- long texts, in steps of Python ----------------------------------------------------------------

MAX_NOTED: Final = 100
"""Keys that came twice: naming more than anybody reads helps nobody."""

_SPACE: Final = r"[ \t\n\r]*+"
_TEXT: Final = r'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_KEY: Final = re.compile(rf"{_SPACE}({_TEXT}){_SPACE}:")
_VALUE: Final = re.compile(
    rf"{_SPACE}(?:({_TEXT})|(-?(?:0|[1-9][0-9]*+))(\.[0-9]++)?([eE][-+]?[0-9]++)?"
    r"|(true|false|null)|([\[{]))"
)
_AFTER: Final = re.compile(rf"{_SPACE}([,\]}}])")
_END_OF_LIST: Final = re.compile(rf"{_SPACE}\]")
_END_OF_OBJECT: Final = re.compile(rf"{_SPACE}\}}")
_text_decoder: Final = msgspec.json.Decoder(str)
_LITERALS: Final = {"true": True, "false": False, "null": None}
_LONGEST_INTEGER: Final = 4_300
"""Digits; Python reads no longer ones, for the time they take."""

MAX_DEPTH: Final = 200
"""Deeper than any real manifest by an order of magnitude."""

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE: Final = frozenset({"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
_INTEGER: Final = re.compile(
    r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[1-9][0-9_]*|0)", re.ASCII
)
_FLOAT: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?", re.ASCII
)
_NOT_A_NUMBER: Final = re.compile(r"[-+]?\.(?:inf|nan)", re.IGNORECASE)
_MAX_INTEGER_DIGITS: Final = 400
_TAG: Final = "tag:yaml.org,2002:"


class NotJson(Exception):
    """The text is not one JSON value; where exactly is for others to say."""


class TooDeep(Exception):
    """The value is nested more deeply than allowed."""


def compose_json(raw: bytes, *, max_depth: int) -> tuple[Any, tuple[str, ...]]:
    """Return the value and the paths of keys that came twice; the last one wins."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise NotJson from error
    composer = _JsonComposer(text, max_depth)
    return composer.compose(), tuple(composer.duplicates)


class _JsonComposer:
    """Builds the value piece by piece; `self._open` is the stack of what is still open.

    A list or object is on the stack with its key in the one around it.
    """

    def __init__(self, text: str, max_depth: int) -> None:
        self.duplicates: list[str] = []
        self._text = text
        self._max_depth = max_depth
        self._open: list[tuple[Any, str]] = []
        self._parts = Parts()

    def compose(self) -> Any:  # noqa: C901, PLR0912 - calls between the steps cost half the time
        """Read the whole text."""
        text, opened, parts = self._text, self._open, self._parts
        read_value, read_after = _VALUE.match, _AFTER.match
        result: Any = None
        value: Any
        key, in_list, at = "", False, 0
        while True:
            # A value, and where it belongs.
            found = read_value(text, at)
            if found is None:
                raise NotJson
            at = found.end()
            quoted, whole, fraction, power, literal, opening = found.groups()
            if quoted is not None:
                value = quoted[1:-1] if "\\" not in quoted else _unescaped(quoted)
                parts.add_values(1)
            elif whole is not None:
                value = self._number(whole, fraction, power)
            elif literal is not None:
                value = _LITERALS[literal]
                parts.add_values(1)
            else:
                value = cast("Any", [] if opening == "[" else {})
                parts.add_container()
            if not opened:
                result = value
            elif len(opened) >= self._max_depth:
                raise TooDeep
            elif in_list:
                opened[-1][0].append(value)
            else:
                opened[-1][0][key] = value
            # What comes next: the first value inside of it, or what is behind it.
            if opening is not None:
                opened.append((value, key))
                in_list = opening == "["
                end = (_END_OF_LIST if in_list else _END_OF_OBJECT).match(text, at)
                if end is None:
                    if not in_list:
                        key, at = self._read_key(at)
                    continue
                at = end.end()
                in_list = self._close()
            while opened:
                after = read_after(text, at)
                if after is None:
                    raise NotJson
                at = after.end()
                sign = after[1]
                if sign == ",":
                    if not in_list:
                        key, at = self._read_key(at)
                    break
                if (sign == "]") is not in_list:
                    raise NotJson
                in_list = self._close()
            else:
                if text[at:].strip(" \t\n\r"):
                    raise NotJson
                return result

    def _close(self) -> bool:
        """Leave the innermost list or object; return whether it is in a list."""
        self._open.pop()
        return bool(self._open) and isinstance(self._open[-1][0], list)

    def _read_key(self, at: int) -> tuple[str, int]:
        found = _KEY.match(self._text, at)
        if found is None:
            raise NotJson
        quoted = found[1]
        key = quoted[1:-1] if "\\" not in quoted else _unescaped(quoted)
        if key in self._open[-1][0] and len(self.duplicates) < MAX_NOTED:
            self.duplicates.append(self._path(key))
        return key, found.end()

    def _number(self, whole: str, fraction: str | None, power: str | None) -> float:
        if fraction or power:
            number = float(f"{whole}{fraction or ''}{power or ''}")
            if number in (float("inf"), float("-inf")):
                raise NotJson
            self._parts.add_number(number)
            return number
        if len(whole) > _LONGEST_INTEGER:
            raise NotJson
        self._parts.add_values(1)
        return int(whole)

    def _path(self, key: str) -> str:
        """Return where a key of the innermost object is."""
        path = ""
        for (outer, _), (_, inner_key) in itertools.pairwise(self._open):
            is_list = isinstance(outer, list)
            path += f"[{len(cast('list[Any]', outer)) - 1}]" if is_list else f".{inner_key}"
        return f"{path}.{key}".lstrip(".")


def _unescaped(quoted: str) -> str:
    try:
        return _text_decoder.decode(quoted)
    except msgspec.DecodeError as error:
        raise NotJson from error


class YamlFault(Exception):
    """The text is not one YAML document we take; the message says where."""


class _Open:
    """A list or object whose end has not been seen yet."""

    __slots__ = ("awaits_value", "key", "value")

    def __init__(self, value: dict[str, Any] | list[Any]) -> None:
        self.value = value
        self.key = ""
        self.awaits_value = False


def compose_yaml(raw: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the document's value and where keys came twice, in words; the last one wins."""
    composer = _YamlComposer()
    try:
        loader = yaml.CSafeLoader(raw)
        try:
            while loader.check_event():
                composer.feed(cast("yaml.Event", loader.get_event()))
        except UnicodeDecodeError as error:
            raise YamlFault(f"not UTF-8 at byte {error.start}") from error
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise YamlFault(" ".join(str(error).split())) from error
    return composer.result, tuple(composer.duplicates)


class _YamlComposer:
    """Builds the value from events; `self._open` is the stack of what is still open."""

    def __init__(self) -> None:
        self.result: Any = None
        self.duplicates: list[str] = []
        self._open: list[_Open] = []
        self._documents = 0
        self._parts = Parts()

    def feed(self, event: yaml.Event) -> None:
        """Take the next event."""
        if isinstance(event, yaml.AliasEvent):
            raise YamlFault(f"{_place(event)}: aliases are not accepted, write the value out")
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise YamlFault(f"{_place(event)}: one document at a time")
        elif isinstance(event, yaml.ScalarEvent):
            self._add(event, _scalar(event))
        elif isinstance(event, yaml.MappingStartEvent):
            self._descend(event, {})
        elif isinstance(event, yaml.SequenceStartEvent):
            self._descend(event, [])
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._open.pop()

    def _descend(self, event: yaml.Event, value: dict[str, Any] | list[Any]) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise YamlFault(f"{_place(event)}: nested more than {MAX_DEPTH} levels deep")
        self._add(event, value)
        self._open.append(_Open(value))

    def _add(self, event: yaml.Event, value: Any) -> None:
        if not self._open:
            self.result = value
            return
        parent = self._open[-1]
        if isinstance(parent.value, list) or parent.awaits_value:
            if isinstance(value, dict | list):
                self._parts.add_container()
            elif isinstance(value, float):
                self._parts.add_number(value)
            else:
                self._parts.add_values(1)
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.awaits_value:
            parent.value[parent.key] = value
            parent.awaits_value = False
        else:
            parent.key, parent.awaits_value = _key(event, value), True
            if parent.key in parent.value and len(self.duplicates) < MAX_NOTED:
                quoted = statuses.quoted(parent.key)
                self.duplicates.append(f"{_place(event)}: key {quoted} already set in map")


def _place(event: yaml.Event) -> str:
    return f"line {event.start_mark.line + 1}" if event.start_mark else "the text"


def _key(event: yaml.Event, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return str(value)
    raise YamlFault(f"{_place(event)}: a key must be a plain value")


def _scalar(event: yaml.ScalarEvent) -> Any:
    text = str(event.value)
    if event.tag and event.tag != "!":
        name = str(event.tag).removeprefix(_TAG)
        if name in ("str", "binary", "timestamp"):
            return text
        if name in ("int", "float", "bool", "null"):
            return _plain(event, text)
        raise YamlFault(f"{_place(event)}: the tag {event.tag} has no meaning here")
    # A quoted or block scalar is text, whatever it looks like.
    return _plain(event, text) if event.implicit[0] else text


def _plain(event: yaml.ScalarEvent, text: str) -> Any:
    if text in _NULLS:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if len(text) < _MAX_INTEGER_DIGITS and _INTEGER.fullmatch(text):
        text = text.replace("_", "")
        digits = text.lstrip("+-")
        if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
            # YAML 1.1: a leading zero means octal, as in file modes.
            return int(digits, 8) * (-1 if text.startswith("-") else 1)
        return int(text, 0)
    if _NOT_A_NUMBER.fullmatch(text):
        raise YamlFault(f"{_place(event)}: {text} is not a number JSON has")
    if len(text) < _MAX_INTEGER_DIGITS and _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text
