"""Texts and numbers of set forms: ports, keys, environment names, addresses, schedules.

As in `kube.names`, a check returns the problems it finds, in Kubernetes' own words.

A cron schedule is `minute hour day-of-month month day-of-week`, where each field is a list of `*`,
numbers, names or ranges, any of them with a step; or one of the shorthands such as `@daily`.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from clusterspace.builtins.validation.rules import problems_at
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import Problems, dns1123_subdomain_problems

_PORT_NAME_LENGTH: Final = 15
_KEY_LENGTH: Final = 253
_LARGEST_ID: Final = (1 << 31) - 1

_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"
_HTTP_HEADER: Final = "[-A-Za-z0-9]+"
_WILDCARD: Final = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_C_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"

FILE_MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"


def port_problems(port: int) -> Problems:
    """Check a port number."""
    return () if 1 <= port <= 65535 else ("must be between 1 and 65535, inclusive",)


def port_name_problems(name: str) -> Problems:
    """Check the name of a port: an IANA service name."""
    found: list[str] = []
    if len(name) > _PORT_NAME_LENGTH:
        found.append(f"must be no more than {_PORT_NAME_LENGTH} characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name and (name.startswith("-") or name.endswith("-")):
        found.append("must not begin or end with a hyphen")
    return tuple(found)


def port_or_name_problems(port: int | str) -> Problems:
    """Check a port that is a number or the name of one."""
    return port_problems(port) if isinstance(port, int) else port_name_problems(port)


def config_key_problems(key: str) -> Problems:
    """Check a key of a ConfigMap or Secret, which may become a file name."""
    found: list[str] = []
    if len(key) > _KEY_LENGTH:
        found.append(f"must be no more than {_KEY_LENGTH} characters")
    if not re.fullmatch(_CONFIG_KEY, key):
        found.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', "
            f"regex used for validation is '{_CONFIG_KEY}')"
        )
    if key in (".", ".."):
        found.append(f"must not be '{key}'")
    elif key.startswith(".."):
        found.append("must not start with '..'")
    return tuple(found)


def environment_name_problems(name: str) -> Problems:
    """Check the name of an environment variable: printable ASCII without an equals sign."""
    if re.fullmatch("[ -<>-~]+", name):
        return ()
    return ("a valid environment variable name must consist only of printable ASCII characters "
            "other than '='",)  # fmt: skip


def http_header_problems(name: str) -> Problems:
    """Check the name of an HTTP header."""
    if re.fullmatch(_HTTP_HEADER, name):
        return ()
    return (
        "a valid HTTP header must consist of alphanumeric characters or '-' "
        f"(e.g. 'X-Header-Name', regex used for validation is '{_HTTP_HEADER}')",
    )


def c_identifier_problems(name: str) -> Problems:
    """Check a name that programs can use as a variable."""
    if re.fullmatch(_C_IDENTIFIER, name):
        return ()
    return (
        "a valid C identifier must start with alphabetic character or '_', followed by a string "
        "of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', "
        f"regex used for validation is '{_C_IDENTIFIER}')",
    )


def wildcard_subdomain_problems(name: str) -> Problems:
    """Check a host name whose first label is a star."""
    if re.fullmatch(_WILDCARD, name):
        return ()
    return (
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, "
        "which must consist of lower case alphanumeric characters, '-' or '.' and end with an "
        "alphanumeric character (e.g. '*.example.com', "
        f"regex used for validation is '{_WILDCARD}')",
    )


def qualified_domain_problems(name: str) -> Problems:
    """Check a domain name of at least three labels, as webhooks have."""
    problems = dns1123_subdomain_problems(name)
    if problems or name.count(".") >= 2:
        return problems
    return ("should be a domain with at least three segments separated by dots",)


def user_id_problems(number: int) -> Problems:
    """Check a numeric user or group id."""
    return (
        () if 0 <= number <= _LARGEST_ID else (f"must be between 0 and {_LARGEST_ID}, inclusive",)
    )


def address_problems(text: str) -> Problems:
    """Check an IP address, as the fields that have always had addresses do."""
    if _parses(ipaddress.ip_address, text):
        return ()
    return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)


def network_problems(text: str) -> Problems:
    """Check a network in CIDR notation."""
    if "/" in text and _parses(lambda each: ipaddress.ip_network(each, strict=False), text):
        return ()
    return ("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",)


def _parses(parse: Callable[[str], Any], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def relative_path_problems(path: str) -> Problems:
    """Check a path that must stay below where it starts."""
    absolute = ("must be a relative path",) if path.startswith("/") else ()
    return (*absolute, *backstep_problems(path))


def backstep_problems(path: str) -> Problems:
    """Check that a path has no step back."""
    return ("must not contain '..'",) if ".." in path.split("/") else ()


def file_name_problems(path: str) -> Problems:
    """Check the path of a projected file, which must not look like the kubelet's own."""
    reserved = path.startswith("..") and not path.startswith("../")
    return (*relative_path_problems(path), *(("must not start with '..'",) if reserved else ()))


def is_file_mode(mode: int) -> bool:
    """Whether a number is the mode of a file."""
    return 0 <= mode <= 0o777


_SHORTHANDS: Final = frozenset(
    {"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
)
_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NAMES: Final[tuple[dict[str, int], ...]] = (
    {},
    {},
    {},
    dict(zip(_MONTHS, range(1, 13), strict=True)),
    dict(zip(_DAYS, range(7), strict=True)),
)


def schedule_problem(schedule: str) -> str:
    """Return the problem with a cron schedule; empty if there is none."""
    text = schedule.partition(" ")[2].strip() if "TZ=" in schedule.partition(" ")[0] else schedule
    if text.startswith("@"):
        is_known = text in _SHORTHANDS or text.startswith("@every ")
        return "" if is_known else f"unrecognized descriptor: {text}"
    fields = text.split()
    if len(fields) != len(_BOUNDS):
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    for field, bounds, names in zip(fields, _BOUNDS, _NAMES, strict=True):
        for part in field.split(","):
            if problem := _part_problem(part, bounds, names):
                return problem
    return ""


def _part_problem(part: str, bounds: tuple[int, int], names: dict[str, int]) -> str:
    span, slash, step = part.partition("/")
    lowest, _, highest = span.partition("-")
    if slash and (not step.isdecimal() or int(step) == 0):
        return _number_problem(step) or f"step of range should be a positive number: {part}"
    if lowest in ("*", "?"):
        return ""
    ends = [lowest, highest] if "-" in span else [lowest]
    for end in ends:
        if end.lower() not in names and (problem := _number_problem(end)):
            return problem
    numbers = [names.get(end.lower(), int(end) if end.isdecimal() else 0) for end in ends]
    start, end = numbers[0], numbers[-1]
    if start < bounds[0]:
        return f"beginning of range ({start}) below minimum ({bounds[0]}): {part}"
    if end > bounds[1]:
        return f"end of range ({end}) above maximum ({bounds[1]}): {part}"
    if start > end:
        return f"beginning of range ({start}) beyond end of range ({end}): {part}"
    return ""


def _number_problem(text: str) -> str:
    if text.isdecimal():
        return ""
    return f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'


def check_domain_path(text: str, path: str) -> Iterator[Cause]:
    """Check a path that starts with the domain of its owner."""
    if not text:
        yield causes.required(path)
        return
    domain, slash, rest = text.partition("/")
    if not slash or not domain or not rest:
        why = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield causes.invalid(path, text, why)
        return
    yield from problems_at(path, domain, dns1123_subdomain_problems(domain))
