"""Named formats, such as DNS labels: `format.dns1123Label().validate(self.name)`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from clusterspace.kube import names
from clusterspace.kube.cel.signatures import Function, function, method
from clusterspace.kube.cel.values import NONE, Optional, register_kind


@dataclass(frozen=True, slots=True)
class Format:
    """A format by its name, and what finds fault with a text."""

    name: str
    problems: Callable[[str], tuple[str, ...]]


register_kind(Format, "kubernetes.NamedFormat")


def _prefix(check: names.NameCheck) -> Callable[[str], tuple[str, ...]]:
    return lambda text: names.prefix_problems(check, text)


_FORMATS: Final[Mapping[str, Format]] = {
    each.name: each
    for each in (
        Format("dns1123Label", names.dns1123_label_problems),
        Format("dns1123Subdomain", names.dns1123_subdomain_problems),
        Format("dns1035Label", names.dns1035_label_problems),
        Format("qualifiedName", names.qualified_name_problems),
        Format("labelValue", names.label_value_problems),
        Format("dns1123LabelPrefix", _prefix(names.dns1123_label_problems)),
        Format("dns1123SubdomainPrefix", _prefix(names.dns1123_subdomain_problems)),
        Format("dns1035LabelPrefix", _prefix(names.dns1035_label_problems)),
    )
}


def _named(name: str) -> Optional:
    found = _FORMATS.get(name)
    return NONE if found is None else Optional(found, is_there=True)


def _validate(wanted: Format, text: str) -> Optional:
    """Return what is wrong, or nothing."""
    found = list(wanted.problems(text))
    return Optional(found, is_there=True) if found else NONE


def _constant(held: Format) -> Function:
    return function(f"format.{held.name}() -> kubernetes.NamedFormat", lambda: held)


FUNCTIONS: Final = (
    *(_constant(held) for held in _FORMATS.values()),
    function("format.named(string) -> optional_type(kubernetes.NamedFormat)", _named),
    method("kubernetes.NamedFormat.validate(string) -> optional_type(list(string))", _validate),
)
