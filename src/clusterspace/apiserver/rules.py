"""What happens to an object of one kind between body and store: the seam every verb goes through.

Built-in kinds and custom ones differ in how they are read, defaulted and validated, and in nothing
else. A verb knows only this protocol.
"""

from dataclasses import dataclass
from typing import Protocol

from clusterspace.builtins.strategies.creation import Creation
from clusterspace.errors import Cause
from clusterspace.kube.objects import Object
from clusterspace.kube.schemas.model import Schema


@dataclass(frozen=True, slots=True)
class Reading:
    """An object in its normal form, and what it said that the kind does not know."""

    kube_object: Object
    unknown_fields: tuple[str, ...] = ()


class Rules(Protocol):
    """The rules of one kind at one served version."""

    @property
    def schema(self) -> Schema:
        """What is known of the kind's fields, for patches and ownership."""
        ...

    @property
    def blank(self) -> Object:
        """What an object of the kind looks like before anybody has written to it."""
        ...

    @property
    def creates_on_update(self) -> bool:
        """Whether a PUT makes an object that is not there."""
        ...

    @property
    def needs_version_to_update(self) -> bool:
        """Whether a PUT must say which version it replaces."""
        ...

    def read(self, kube_object: Object) -> Reading:
        """Bring a decoded body into the kind's normal form; BadRequest when a type is wrong."""
        ...

    def default(self, kube_object: Object) -> Object:
        """Fill in what was left out."""
        ...

    def prepare_create(self, kube_object: Object, creation: Creation) -> Object:
        """Set what only the server may set on a new object, its generation among it."""
        ...

    def prepare_update(self, new: Object, old: Object, subresource: str) -> Object:
        """Keep what this write may not touch, and count the generation.

        A write of the object keeps the status; a write of `status` keeps everything else.
        """
        ...

    def prepare_delete(self, marked: Object, old: Object) -> Object:
        """Return how an object that is being deleted looks, given how most kinds look."""
        ...

    def validate_create(self, kube_object: Object) -> tuple[Cause, ...]:
        """Return every reason to refuse a new object."""
        ...

    def validate_update(self, new: Object, old: Object, subresource: str) -> tuple[Cause, ...]:
        """Return every reason to refuse a change."""
        ...
