"""Configuration files in Kubernetes' form, read strictly: what is odd is refused with its place.

    jwt[0].issuer: odd is not known here: there is no field odd, only url, audiences
    resources[0].providers: it has to be a list with something in it

A file is read from the top: `read_configuration` says whether it is of the kind that is meant, and
a Section is each map in it, with its place. Values are never shown: they may be keys. A field that
nobody reads would be believed to work, so a reader says which there are; `unknown` is for kinds of
which kube-apiserver takes files with more in them.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from clusterspace.errors import UnusableConfiguration

A_LIST: Final = "it has to be a list"
SOME: Final = "it has to be a list with something in it"


@dataclass(frozen=True, slots=True)
class Section:
    """A map in a configuration file, and where it is."""

    place: str
    """Empty for the file itself."""
    fields: Mapping[str, Any]

    def at(self, key: str) -> str:
        """Return the place of a field."""
        return f"{self.place}.{key}" if self.place else key

    def refusal(self, key: str, why: str) -> UnusableConfiguration:
        """Return the error about a field, or about the section when the key is empty."""
        place = self.at(key) if key else self.place or "the file"
        return UnusableConfiguration(f"{place}: {why}")

    def require_only(self, *known: str) -> None:
        """Refuse every field but these."""
        for each in self.unknown(known):
            there = f"there is no field {each}, only {', '.join(known)}"
            raise self.refusal("", f"{each} is not known here: {there}")

    def unknown(self, known: Collection[str]) -> Iterator[str]:
        """Yield the fields that are none of these."""
        return (str(each) for each in self.fields if each not in known)

    def get(self, key: str) -> Any:
        """Return whatever a field has; None when it is not there."""
        return self.fields.get(key)

    def text(self, key: str, default: str = "") -> str:
        """Return a text; the default when it is empty or not there."""
        found = self.fields.get(key)
        if found is not None and not isinstance(found, str):
            raise self.refusal(key, "it has to be a text")
        return found or default

    def flag(self, key: str, *, default: bool) -> bool:
        """Return whether a field is true."""
        found = self.fields.get(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.refusal(key, "it has to be true or false")
        return found

    def items(self, key: str, why: str = A_LIST) -> list[Any]:
        """Return a list, empty when it is not there; `why` says how else it has to be.

        With SOME there must be something in it.
        """
        found = self.fields.get(key)
        if found is None and why != SOME:
            return []
        if not isinstance(found, list) or (why == SOME and not found):
            raise self.refusal(key, why)
        return cast("list[Any]", found)

    def texts(self, key: str, why: str = A_LIST) -> tuple[str, ...]:
        """Return a list of texts."""
        found = self.items(key, why)
        for index, each in enumerate(found):
            if not isinstance(each, str):
                raise self.refusal(f"{key}[{index}]", "it has to be a text")
        return tuple(found)

    def section(self, key: str) -> "Section":
        """Return a map that must be there."""
        return _section(self.fields.get(key), self.at(key))

    def sections(self, key: str, why: str = A_LIST) -> "list[Section]":
        """Return a list of maps."""
        found = self.items(key, why)
        return [_section(each, f"{self.at(key)}[{index}]") for index, each in enumerate(found)]


def read_configuration(
    document: Any, kind: str, versions: Sequence[str], *, called: str = ""
) -> Section:
    """Return the whole file; UnusableConfiguration when it is not of this kind and version."""
    what = called or kind
    if not isinstance(document, dict):
        raise UnusableConfiguration(f"it is no {what}: it has to be a map")
    config = Section("", cast("dict[str, Any]", document))
    version = config.get("apiVersion")
    if version not in versions or config.get("kind") != kind:
        said = f"it says {version}, {config.get('kind')}"
        raise UnusableConfiguration(f"it is no {what} of {versions[0]}: {said}")
    return config


def _section(value: Any, place: str) -> Section:
    if not isinstance(value, dict):
        raise UnusableConfiguration(f"{place}: it has to be a map")
    return Section(place, cast("dict[str, Any]", value))
