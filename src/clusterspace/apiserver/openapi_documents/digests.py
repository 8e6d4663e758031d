"""What a document is made from, as a hash: known before the document is made.

The index of /openapi/v3 names the hash of every document, and nobody reads more than a few of
them. A hash is the same after a restart as before, so clients keep what they have.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from clusterspace import __version__
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.openapi_documents.components import is_published
from clusterspace.apiserver.openapi_documents.documents import Root
from clusterspace.builtins import schemas as builtin_schemas
from clusterspace.kube.schemas.model import Schema


def digest_of_root(root: Root) -> str:
    """Return the hash of a root's document."""
    return _digest([_digest_of_facts(), root])


def digest_of_resources(resources: Sequence[Served]) -> str:
    """Return the hash of the document of a group version with these resources."""
    return _digest([_digest_of_facts(), *(_ingredients(served) for served in resources)])


def _ingredients(served: Served) -> tuple[Any, ...]:
    own = "" if is_published(served) else _SchemaDigest.of(served.rules.schema).text
    return (served.info, served.is_custom, served.returns_deleted, own)


class _SchemaDigest:
    """The hash of a custom schema, kept with the schema: most outlive many changes of others."""

    def __init__(self, schema: Schema) -> None:
        self.text = _digest(schema.raw)

    @classmethod
    def of(cls, schema: Schema) -> "_SchemaDigest":
        made = schema.memo.get(cls)
        if made is None:
            made = schema.memo[cls] = cls(schema)
        return made


@cache
def _digest_of_facts() -> str:
    """Return the hash of this release and of all it knows of built-in kinds."""
    names = builtin_schemas.definition_names()
    return _digest([__version__, {name: builtin_schemas.definition(name).raw for name in names}])


def _digest(value: Any) -> str:
    encoded = msgspec.json.encode(value, order="deterministic")
    return hashlib.sha256(encoded).hexdigest().upper()
