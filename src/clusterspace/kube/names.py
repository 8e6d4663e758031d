"""The rules for names, label keys and label values, in Kubernetes' own words.

Every check returns the problems found, none when the text is good: a caller with a whole object
to judge wants all of them at once. The messages are Kubernetes' own, to the letter, because
people search for them.
"""

import re
from collections.abc import Callable
from random import Random
from typing import TypeAlias

Problems: TypeAlias = tuple[str, ...]

NameCheck: TypeAlias = Callable[[str], Problems]
"""Finds the problems of a name."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"

_LABEL_LENGTH = 63
_SUBDOMAIN_LENGTH = 253

# Letters and digits that spell no words and are hard to mistake for one another.
_GENERATED_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LENGTH = 5
_GENERATED_BASE_LENGTH = _LABEL_LENGTH - _GENERATED_LENGTH


def dns1123_label_problems(value: str) -> Problems:
    """Check a namespace name, or anything else that is one DNS label."""
    too_long = _length_problems(value, _LABEL_LENGTH)
    if re.fullmatch(_LABEL, value):
        return too_long
    if re.fullmatch(_SUBDOMAIN, value):
        return (*too_long, "must not contain dots")
    message = (
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        "and must start and end with an alphanumeric character"
    )
    return (*too_long, _with_regex(message, _LABEL, "my-name", "123-abc"))


def dns1123_subdomain_problems(value: str) -> Problems:
    """Check what most objects are named by: DNS labels joined by dots."""
    too_long = _length_problems(value, _SUBDOMAIN_LENGTH)
    if re.fullmatch(_SUBDOMAIN, value):
        return too_long
    message = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
        "'-' or '.', and must start and end with an alphanumeric character"
    )
    return (*too_long, _with_regex(message, _SUBDOMAIN, "example.com"))


def dns1035_label_problems(value: str) -> Problems:
    """Check a service name: a DNS label that starts with a letter."""
    too_long = _length_problems(value, _LABEL_LENGTH)
    if re.fullmatch(_DNS1035, value):
        return too_long
    message = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with "
        "an alphabetic character, and end with an alphanumeric character"
    )
    return (*too_long, _with_regex(message, _DNS1035, "my-name", "abc-123"))


def qualified_name_problems(value: str) -> Problems:
    """Check a label or annotation key: `name` or `dns.prefix/name`."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        message = f"a qualified name {_qualified_message()}"
        return (f"{message} with an optional DNS subdomain prefix and '/' (e.g. '{_EXAMPLE_KEY}')",)
    problems: list[str] = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += (f"prefix part {each}" for each in dns1123_subdomain_problems(prefix))
    length = _length_problems(name, _LABEL_LENGTH) if name else ("must be non-empty",)
    problems += (f"name part {each}" for each in length)
    if not re.fullmatch(_QUALIFIED, name):
        problems.append(f"name part {_qualified_message()}")
    return tuple(problems)


label_key_problems: NameCheck = qualified_name_problems


def label_value_problems(value: str) -> Problems:
    """Check a label's value; the empty string is one."""
    too_long = _length_problems(value, _LABEL_LENGTH)
    if re.fullmatch(_LABEL_VALUE, value):
        return too_long
    message = (
        "a valid label must be an empty string or consist of alphanumeric characters, "
        "'-', '_' or '.', and must start and end with an alphanumeric character"
    )
    return (*too_long, _with_regex(message, _LABEL_VALUE, "MyValue", "my_value", "12345"))


def path_segment_problems(value: str) -> Problems:
    """Check a name that need only fit in a URL path, such as that of a Role."""
    if value in (".", ".."):
        return (f"may not be '{value}'",)
    return path_segment_prefix_problems(value)


def path_segment_prefix_problems(value: str) -> Problems:
    """Check the start of a name that need only fit in a URL path."""
    return tuple(f"may not contain '{text}'" for text in ("/", "%") if text in value)


def prefix_problems(check: NameCheck, generate_name: str) -> Problems:
    """Check a `generateName`: what comes after it will make a trailing dash good."""
    if check is path_segment_problems:
        return path_segment_prefix_problems(generate_name)
    is_dashed = len(generate_name) > 1 and generate_name.endswith("-")
    return check(f"{generate_name[:-2]}a" if is_dashed else generate_name)


def generate_name(base: str, random: Random) -> str:
    """Return the base, cut to leave room, and five random characters."""
    suffix = "".join(random.choices(_GENERATED_ALPHABET, k=_GENERATED_LENGTH))
    return f"{base[:_GENERATED_BASE_LENGTH]}{suffix}"


_EXAMPLE_KEY = "example.com/MyName"


def _qualified_message() -> str:
    message = (
        "must consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _with_regex(message, _QUALIFIED, "MyName", "my.name", "123-abc")


def _length_problems(value: str, most: int) -> Problems:
    # Kubernetes says characters and counts bytes; so do we.
    is_too_long = len(value.encode("utf-8", "surrogatepass")) > most
    return (f"must be no more than {most} characters",) if is_too_long else ()


def _with_regex(message: str, regex: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {listed}regex used for validation is '{regex}')"
