"""Faults on request, as rules: which requests they hit, and what happens to those.

    - fault: latency        # answer late, by `seconds`
      seconds: 2
      verbs: [list, watch]
      resources: [pods, deployments.apps]
    - fault: error          # answer with `code`: 429, 500, 503 or 504
      code: 503
      chance: 0.3
    - fault: drop           # cut the connection; running watches too
      times: 5
    - fault: empty          # answer lists without their items
    - fault: truncate       # cut the connection in the middle of the answer
    - fault: shorten        # answer with half a body that claims to be whole
    - fault: freeze         # answer nothing while the rule stands; running watches fall silent
    - fault: expire         # answer watches with 410; running ones end with it

A rule without `verbs`, `resources` or `namespaces` hits every one of them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

import msgspec

from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.errors import BadRequest

NAMESPACE: Final = "kube-system"
CONFIG_MAP: Final = "clusterspace-sim-faults"
DATA_KEY: Final = "rules"


class Fault(Enum):
    """What can go wrong on request."""

    LATENCY = "latency"
    DROP = "drop"
    ERROR = "error"
    EMPTY = "empty"
    TRUNCATE = "truncate"
    SHORTEN = "shorten"
    FREEZE = "freeze"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault, and the requests it hits."""

    fault: Fault
    verbs: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    chance: float = 1.0
    times: int | None = None
    """How often it hits before it is used up."""
    seconds: float = 1.0
    code: int = 503

    def hits(self, info: RequestInfo) -> bool:
        """Whether the rule is about a request."""
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces and info.namespace not in self.namespaces:
            return False
        named = {info.resource, f"{info.resource}.{info.group}" if info.group else info.resource}
        return not self.resources or bool(self.resources & named)


def is_exempt(info: RequestInfo) -> bool:
    """Whether a request is about the rules themselves: those must always get through."""
    return (
        info.resource == "configmaps"
        and info.namespace == NAMESPACE
        and (info.name == CONFIG_MAP or info.is_write)
    )


# -- reading -----------------------------------------------------------------------------------

_CODES: Final = (429, 500, 503, 504)
_FIELDS: Final = frozenset(
    {"fault", "verbs", "resources", "namespaces", "chance", "times", "seconds", "code"}
)


def read_rules(data: Mapping[str, Any] | None) -> tuple[Rule, ...]:
    """Read the rules from a ConfigMap's data; BadRequest that names the place when they are off."""
    text = str((data or {}).get(DATA_KEY) or "")
    try:
        listed: Any = msgspec.yaml.decode(text.encode()) if text.strip() else []
    except msgspec.DecodeError as error:
        raise _wrong("", f"is not YAML: {error}") from error
    if not isinstance(listed, list):
        raise _wrong("", "must be a list of faults")
    return tuple(_read_rule(each, index) for index, each in enumerate(cast("list[Any]", listed)))


def _read_rule(given: Any, index: int) -> Rule:
    place = f"[{index}]"
    if not isinstance(given, dict):
        raise _wrong(place, "must be an object")
    held = cast("dict[str, Any]", given)
    unknown = sorted(set(held) - _FIELDS)
    if unknown:
        raise _wrong(f"{place}.{unknown[0]}", f"is not one of {', '.join(sorted(_FIELDS))}")
    known = ", ".join(each.value for each in Fault)
    if held.get("fault") not in {each.value for each in Fault}:
        raise _wrong(f"{place}.fault", f"must be one of {known}")
    times = held.get("times")
    code = held.get("code", 503)
    if code not in _CODES:
        raise _wrong(f"{place}.code", f"must be one of {', '.join(map(str, _CODES))}")
    return Rule(
        fault=Fault(held["fault"]),
        verbs=_texts(held, "verbs", place),
        resources=_texts(held, "resources", place),
        namespaces=_texts(held, "namespaces", place),
        chance=_number(held.get("chance", 1.0), f"{place}.chance", most=1.0),
        times=None if times is None else int(_number(times, f"{place}.times")),
        seconds=_number(held.get("seconds", 1.0), f"{place}.seconds"),
        code=int(code),
    )


def _texts(held: Mapping[str, Any], name: str, place: str) -> frozenset[str]:
    given: Any = held.get(name) or []
    if not isinstance(given, list):
        raise _wrong(f"{place}.{name}", "must be a list of texts")
    found = cast("Iterable[Any]", given)
    return frozenset(str(each) for each in found)


def _number(given: Any, place: str, *, most: float = math.inf) -> float:
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given <= most:
        limit = "" if most == math.inf else f" and at most {most:g}"
        raise _wrong(place, f"must be a number of at least 0{limit}")
    return given


def _wrong(place: str, why: str) -> BadRequest:
    return BadRequest(f"data.{DATA_KEY}{place} {why}")
