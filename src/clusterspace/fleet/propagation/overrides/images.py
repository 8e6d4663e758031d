"""Image references: registry, repository, tag; and changing one of them.

registry.example:5000/team/web:1.4@sha256:…
└──── registry ─────┘ └─ repository └ tag ┘
"""

import re
from dataclasses import dataclass, replace
from typing import Final

from clusterspace.errors import OverrideFailed

_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:[0-9A-Fa-f]{32,}")


@dataclass(frozen=True, slots=True)
class Image:
    """An image reference in its parts; those that are not there are empty."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        path = f"{self.registry}/{self.repository}" if self.registry else self.repository
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return path + tag + digest


def read_image(text: str) -> Image:
    """Read an image reference.

    The first part of the path is a registry when it looks like a host: it has a dot or a port, or
    is `localhost`.
    """
    named, _, digest = text.partition("@")
    first, slash, rest = named.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    registry, path = (first, rest) if is_host else ("", named)
    repository, _, tag = path.partition(":")
    if not repository:
        raise OverrideFailed(f"{text!r} is no image reference")
    return Image(registry, repository, tag, digest)


def overridden_image(text: str, component: str, operator: str, value: str) -> str:
    """Return the image reference with one component added to, replaced or removed."""
    image = read_image(text)
    match component:
        case "Registry":
            changed = replace(image, registry=_changed(image.registry, operator, value))
        case "Repository":
            changed = replace(image, repository=_changed(image.repository, operator, value))
        case _:
            changed = _with_version(
                image, _changed(image.tag or image.digest, operator, value), value
            )
    if not changed.repository:
        raise OverrideFailed(f"the image {text} would be left without a repository")
    return str(changed)


def _changed(held: str, operator: str, value: str) -> str:
    match operator:
        case "add":
            return held + value
        case "replace":
            return value
        case _:
            return ""


def _with_version(image: Image, version: str, value: str) -> Image:
    """Return the image at a tag or digest: one stands for the other, and both would be a riddle."""
    if not version:
        return replace(image, tag="", digest="")
    if _TAG.fullmatch(version):
        return replace(image, tag=version, digest="")
    if _DIGEST.fullmatch(version):
        return replace(image, tag="", digest=version)
    raise OverrideFailed(
        f"{value!r} makes {version!r} of the image's version: no tag and no digest"
    )
