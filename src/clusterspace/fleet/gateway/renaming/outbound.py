"""What one cluster answered, with names as the client used them."""

from typing import Any, cast

import msgspec

from clusterspace.errors import ClusterMisbehaved, MalformedObject
from clusterspace.fleet.gateway.names import Naming, Subject
from clusterspace.fleet.gateway.renaming import edits, rules
from clusterspace.fleet.gateway.renaming.edits import Fields
from clusterspace.kube.objects import Object, find_at

_NAMESPACE_WORDS = frozenset({"namespaces", "Namespace"})


def rewrite(body: bytes, naming: Naming, subject: Subject) -> bytes:
    """Return the answer of `naming.cluster` renamed: an object, a list, a Table, or a Status.

    Raises ClusterMisbehaved when the answer is not JSON.
    """
    if naming.is_plain or subject.subresource in rules.NOT_OBJECTS or not body:
        return body
    try:
        fields = edits.read_object(body)
        kind = edits.text_at(fields, "kind")
        if kind == "Status":
            edited = _edited_status(fields, naming, subject)
        elif kind == "Table":
            edited = rules.table_edit(naming, subject)(fields)
        elif kind.endswith("List") and "items" in fields:
            each = {edits.EACH: rules.outward(naming, subject)}
            edited = edits.editor_of({"items": each})(fields)
        else:
            edited = rules.renamer(naming, subject)(fields)
    except MalformedObject as error:
        raise ClusterMisbehaved(
            naming.cluster, f"its answer cannot be read: {error.message}"
        ) from error
    return body if edited is fields else edits.encode(edited)


def _edited_status(fields: Fields, naming: Naming, subject: Subject) -> Fields:
    """Rename what the Status is about, and where its message says so; the rest is prose."""
    details: Any = msgspec.json.decode(fields.get("details", b"null"))
    name = find_at(details, "name")
    about_namespace = find_at(details, "kind") in _NAMESPACE_WORDS and naming.qualifies_namespaces
    change = rules.qualifier(naming, subject, is_namespace=about_namespace)
    if change is None or not isinstance(name, str) or not name:
        return fields
    renamed = change(name)
    message = edits.text_at(fields, "message").replace(f'"{name}"', f'"{renamed}"', 1)
    said = {"message": message} if "message" in fields else {}
    return {**fields, **said, "details": {**cast("Object", details), "name": renamed}}
