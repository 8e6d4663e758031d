"""Resource and object to storage key, and back."""

from typing import Final

_ROOT: Final = "/registry/"


def collection_key(group: str, plural: str, namespace: str = "") -> str:
    """Return the prefix of a resource's objects, or of those in one namespace.

    It ends with a slash, so that `/registry/g/foo/` never covers `/registry/g/foobar/…`.
    """
    base = f"{_ROOT}{group or 'core'}/{plural}/"
    return f"{base}{namespace}/" if namespace else base


def object_key(group: str, plural: str, namespace: str, name: str) -> str:
    """Return the key of one object; cluster-scoped objects have no namespace."""
    return collection_key(group, plural, namespace) + name


def name_in(key: str) -> str:
    """Return the object's name."""
    return key.rpartition("/")[2]
