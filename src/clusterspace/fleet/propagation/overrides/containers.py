"""Images, commands and arguments of the containers of a workload."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from clusterspace.apis.interpreter import kinds
from clusterspace.errors import OverrideFailed
from clusterspace.fleet.propagation.overrides.images import overridden_image
from clusterspace.kube.json_pointers import read_pointer
from clusterspace.kube.objects import Object, find_at, with_value
from clusterspace.kube.patches.json_patch import Operation, apply_json_patch
from clusterspace.kube.resources import GroupKind

_IN_TEMPLATE: Final = ("spec", "template", "spec", "containers")
_CONTAINERS: Final[Mapping[GroupKind, tuple[str, ...]]] = {
    kinds.POD: ("spec", "containers"),
    kinds.REPLICA_SET: _IN_TEMPLATE,
    kinds.DEPLOYMENT: _IN_TEMPLATE,
    kinds.DAEMON_SET: _IN_TEMPLATE,
    kinds.STATEFUL_SET: _IN_TEMPLATE,
    kinds.JOB: _IN_TEMPLATE,
}
"""Where the kinds that run containers list them; init containers are named by a path."""

EditContainer = Callable[[Object], Object]


def override_image(manifest: Object, overrider: Object) -> Object:
    """Change the image of every container, or the one at the path the overrider names."""
    path = find_at(overrider, "predicate", "path")
    if path:
        return _override_image_at(manifest, str(path), overrider)
    return _with_containers(manifest, lambda container: _override_image_of(container, overrider))


def override_command(manifest: Object, overrider: Object) -> Object:
    """Add words to a container's command, or take them out."""
    return _override_words(manifest, overrider, "command")


def override_arguments(manifest: Object, overrider: Object) -> Object:
    """Add words to a container's arguments, or take them out."""
    return _override_words(manifest, overrider, "args")


def _override_image_of(container: Object, overrider: Object) -> Object:
    image = container.get("image")
    return {**container, "image": _new_image(image, overrider)} if image else container


def _override_image_at(manifest: Object, path: str, overrider: Object) -> Object:
    image = read_text_at(manifest, path)
    change = Operation("replace", read_pointer(path), (), _new_image(image, overrider))
    return apply_json_patch(manifest, (change,))


def _new_image(image: str, overrider: Object) -> str:
    component, operator = str(overrider["component"]), str(overrider["operator"])
    return overridden_image(image, component, operator, str(overrider.get("value") or ""))


def _override_words(manifest: Object, overrider: Object, field: str) -> Object:
    words: Sequence[str] = overrider.get("value") or ()

    def edit(container: Object) -> Object:
        if container.get("name") != overrider["containerName"]:
            return container
        held: list[str] = container.get(field) or []
        is_added = overrider["operator"] == "add"
        changed = [*held, *words] if is_added else [word for word in held if word not in words]
        if changed:
            return {**container, field: changed}
        return {key: each for key, each in container.items() if key != field}

    return _with_containers(manifest, edit)


def _with_containers(manifest: Object, edit: EditContainer) -> Object:
    """Return the manifest with every container edited; the same one for kinds that have none."""
    path = _CONTAINERS.get(kinds.kind_of(manifest))
    held: list[Object] = find_at(manifest, *path) or [] if path else []
    return with_value(manifest, [edit(each) for each in held], *path) if path and held else manifest


def read_text_at(manifest: Object, path: str) -> str:
    """Return the text at a JSON pointer; OverrideFailed when there is none."""
    value: Any = manifest
    try:
        for step in read_pointer(path):
            value = _step_into(value, step)
    except (ValueError, LookupError) as error:
        raise OverrideFailed(f"there is nothing at {path}") from error
    if not isinstance(value, str):
        raise OverrideFailed(f"there is no text at {path}")
    return value


def _step_into(value: Any, step: str) -> Any:
    if isinstance(value, list):
        return cast("list[Any]", value)[int(step)]
    if isinstance(value, dict):
        return cast("Object", value)[step]
    raise LookupError(step)
