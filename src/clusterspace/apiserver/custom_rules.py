"""The rules of custom resources, from the schema in their definition."""

from collections.abc import Iterator
from typing import Any, Final, cast

from clusterspace.apiserver.rules import Reading
from clusterspace.builtins.object_metadata import read_metadata
from clusterspace.builtins.strategies.creation import Creation
from clusterspace.builtins.validation.metadata import check_metadata, check_metadata_update
from clusterspace.errors import BadRequest, Cause, MalformedObject, MethodNotAllowed
from clusterspace.kube import causes
from clusterspace.kube.cel.evaluation import ABSENT, check_rules, has_rules
from clusterspace.kube.field_paths import NO_PATH, dotted_text, value_text
from clusterspace.kube.names import dns1123_subdomain_problems
from clusterspace.kube.objects import Object, metadata_of, with_metadata
from clusterspace.kube.resources import GroupVersionKind
from clusterspace.kube.schemas.model import OBJECT_META, Schema, holds_objects, places
from clusterspace.kube.schemas.pruning import apply_defaults, prune
from clusterspace.kube.schemas.validation import still_new, validate

_TEXT: Final = {"type": "string"}
_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""After one of these the rules are not asked: they are written for values of the right shape."""

_UNASKED: Final = causes.invalid(
    NO_PATH,
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


_ENDING: Final = "create not allowed while custom resource definition is terminating"


class CustomRules:
    """The rules of one served version of a custom resource."""

    def __init__(
        self,
        kind: GroupVersionKind,
        raw_schema: Object,
        *,
        has_status: bool,
        is_ending: bool = False,
    ) -> None:
        self._kind = kind
        self._is_ending = is_ending
        self._own = Schema(raw_schema)
        self._has_status = has_status
        meta = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": OBJECT_META.raw}
        properties = {**cast("Object", raw_schema.get("properties") or {}), **meta}
        self._whole = Schema({**raw_schema, "properties": properties})

    @property
    def schema(self) -> Schema:
        """What is known of the kind's fields, metadata included."""
        return self._whole

    @property
    def blank(self) -> Object:
        """Nothing: a custom object has no fields that nobody wrote."""
        return {}

    @property
    def creates_on_update(self) -> bool:
        """Whether a PUT makes an object that is not there."""
        return False

    @property
    def needs_version_to_update(self) -> bool:
        """Whether a PUT must say which version it replaces."""
        return True

    def read(self, kube_object: Object) -> Reading:
        """Drop what the schema does not know, and bring metadata into its normal form."""
        try:
            metadata = read_metadata(kube_object.get("metadata") or {})
        except MalformedObject as malformed:
            raise self._refused(malformed.message) from malformed
        pruned = prune({**kube_object, "metadata": metadata}, self._own, is_resource_root=True)
        kept = cast("Object", pruned.value)
        self._check_embedded(kept)
        return Reading(kept, pruned.unknown)

    def default(self, kube_object: Object) -> Object:
        """Fill in what was left out."""
        return cast("Object", apply_defaults(kube_object, self._own))

    def prepare_create(self, kube_object: Object, creation: Creation) -> Object:
        """Start at the first generation, without a status that only its own door may write."""
        del creation  # nothing of a custom object depends on who asks
        if self._is_ending:
            raise MethodNotAllowed(_ENDING)
        new = with_metadata(kube_object, generation=1)
        return _without_status(new) if self._has_status else new

    def prepare_update(self, new: Object, old: Object, subresource: str) -> Object:
        """Keep the status, or everything but the status; count what else has changed."""
        if subresource == "status":
            return _with_status_of(_with_owners_of(old, new), new)
        kept = _with_status_of(new, old) if self._has_status else new
        generation = int(metadata_of(old).get("generation") or 0)
        is_changed = self._desired(kept) != self._desired(old)
        return with_metadata(kept, generation=generation + 1 if is_changed else generation or None)

    def prepare_delete(self, marked: Object, old: Object) -> Object:
        """Return how an object that is being deleted looks: as most kinds do."""
        del old
        return marked

    def validate_create(self, kube_object: Object) -> tuple[Cause, ...]:
        """Return every reason to refuse a new object."""
        found = [*_new_metadata_causes(kube_object), *validate(kube_object, self._own)]
        return (*found, *self._rule_causes(found, kube_object))

    def validate_update(self, new: Object, old: Object, subresource: str) -> tuple[Cause, ...]:
        """Return every reason to refuse a change; what was wrong before and stays is let be."""
        wrong = validate(new, self._own)
        found = [*check_metadata_update(new, old), *still_new(wrong, new, old, self._own)]
        return (*found, *self._rule_causes(found, new, old))

    def _rule_causes(
        self, found: list[Cause], new: Object, old: object = ABSENT
    ) -> tuple[Cause, ...]:
        if not has_rules(self._own):
            return ()
        if any(cause.reason in _BLOCKING for cause in found):
            return (_UNASKED,)
        return check_rules(new, self._own, old=old)

    def _desired(self, kube_object: Object) -> Object:
        ignored = ("metadata", "status") if self._has_status else ("metadata",)
        return {key: held for key, held in kube_object.items() if key not in ignored}

    def _check_embedded(self, kube_object: Object) -> None:
        """Refuse whole objects inside of this one whose metadata cannot be read."""
        for place in places(kube_object, self._own, holds_objects):
            metadata = _embedded_metadata(place.value, place.schema)
            if metadata is None:
                continue
            try:
                read_metadata(metadata)
            except MalformedObject as malformed:
                where = dotted_text((*place.steps, "metadata"))
                shown = value_text(metadata)
                why = f"{where}: Invalid value: {shown}: {malformed.message}"
                raise self._refused(why) from malformed

    def _refused(self, why: str) -> BadRequest:
        kind = self._kind.kind
        text = f'{kind} in version "{self._kind.version}" cannot be handled as a {kind}: {why}'
        return BadRequest(text)


def _embedded_metadata(value: Any, schema: Schema) -> Any:
    if not schema.is_embedded_resource or not isinstance(value, dict):
        return None
    return cast("Object", value).get("metadata")


def _new_metadata_causes(kube_object: Object) -> Iterator[Cause]:
    for cause in check_metadata(kube_object, dns1123_subdomain_problems):
        # Custom objects may have finalizers without a domain, which Kubernetes has let pass.
        if not cause.field.startswith("metadata.finalizers["):
            yield cause


def _without_status(kube_object: Object) -> Object:
    return {key: held for key, held in kube_object.items() if key != "status"}


def _with_status_of(kube_object: Object, other: Object) -> Object:
    bare = _without_status(kube_object)
    return {**bare, "status": other["status"]} if "status" in other else bare


def _with_owners_of(old: Object, new: Object) -> Object:
    """Return the old object with the new record of who owns its fields."""
    return with_metadata(old, managedFields=metadata_of(new).get("managedFields"))
