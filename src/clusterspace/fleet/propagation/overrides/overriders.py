"""The overriders of one rule, in the order in which they take effect."""

from collections.abc import Callable, Mapping
from typing import Final

from clusterspace.apis.overrides import require_same_object
from clusterspace.errors import InapplicablePatch, Malformed, OverrideFailed
from clusterspace.fleet.propagation.overrides.containers import (
    override_arguments,
    override_command,
    override_image,
)
from clusterspace.fleet.propagation.overrides.documents import override_document
from clusterspace.kube.objects import Object, metadata_of, with_metadata
from clusterspace.kube.patches.json_patch import apply_json_patch, parse_json_patch

Override = Callable[[Object, Object], Object]
"""Returns the manifest as one overrider changes it."""


def apply_overriders(manifest: Object, overriders: Object) -> Object:
    """Return the manifest as one rule changes it; OverrideFailed names what cannot be done.

    After every single overrider it is still the same object, with the same marks and grants. What
    admission let pass, or never saw, ends here.
    """
    for field, override in _IN_ORDER.items():
        listed: list[Object] = overriders.get(field) or []
        for index, overrider in enumerate(listed):
            try:
                changed = override(manifest, overrider)
                require_same_object(manifest, changed)
            except InapplicablePatch as error:
                raise OverrideFailed(f"{field}[{index}]: {error.problem}") from error
            except (Malformed, OverrideFailed) as error:
                raise OverrideFailed(f"{field}[{index}]: {error}") from error
            manifest = changed
    return manifest


def override_labels(manifest: Object, overrider: Object) -> Object:
    """Set labels, replace the ones that are there, or take them out."""
    return _override_map(manifest, overrider, "labels")


def override_annotations(manifest: Object, overrider: Object) -> Object:
    """Set annotations, replace the ones that are there, or take them out."""
    return _override_map(manifest, overrider, "annotations")


def override_anything(manifest: Object, overrider: Object) -> Object:
    """Carry out one operation of a JSON patch."""
    operation = {
        "op": overrider["operator"],
        "path": overrider["path"],
        "value": overrider.get("value"),
    }
    return apply_json_patch(manifest, parse_json_patch([operation]))


def _override_map(manifest: Object, overrider: Object, field: str) -> Object:
    held: Mapping[str, str] = metadata_of(manifest).get(field) or {}
    given: Mapping[str, str] = overrider.get("value") or {}
    match overrider["operator"]:
        case "add":
            changed = {**held, **given}
        case "replace":
            changed = {key: given.get(key, value) for key, value in held.items()}
        case _:
            changed = {key: value for key, value in held.items() if key not in given}
    return with_metadata(manifest, **{field: changed or None})


_IN_ORDER: Final[Mapping[str, Override]] = {
    "imageOverrider": override_image,
    "commandOverrider": override_command,
    "argsOverrider": override_arguments,
    "labelsOverrider": override_labels,
    "annotationsOverrider": override_annotations,
    "fieldOverrider": override_document,
    "plaintext": override_anything,
}
"""Karmada's order: plaintext last, so that it can undo what the others did."""
