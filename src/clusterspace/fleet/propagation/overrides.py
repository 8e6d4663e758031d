"""What changes in a manifest on its way to one cluster; pure, from values to values.

    policies that match ──in order──> rules for this cluster ──in order──> overriders ──> manifest

An overrider that cannot be applied raises OverrideFailed; a manifest with half of its overrides
is never returned.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import msgspec
import yaml

from clusterspace.apis import kinds
from clusterspace.apis.affinities import Traits, read_affinity
from clusterspace.apis.overrides import require_same_object
from clusterspace.apis.policies import Precision, best_precision, selectors_of
from clusterspace.apiserver.http.bodies import YamlFault, compose_yaml
from clusterspace.errors import InapplicablePatch, Malformed, MalformedSelector, OverrideFailed
from clusterspace.kube.json_patches import (
    Operation,
    apply_json_patch,
    parse_json_patch,
    read_pointer,
)
from clusterspace.kube.objects import (
    Object,
    find_at,
    metadata_of,
    name_of,
    with_metadata,
    with_value,
)
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

_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:[0-9A-Fa-f]{32,}")
_encoder: Final = msgspec.json.Encoder(order="deterministic")
_ROOT: Final = "document"

_FIELD_ORDER: Final = {
    name: rank
    for rank, name in enumerate((
        "plaintext", "imageOverrider", "commandOverrider", "argsOverrider", "labelsOverrider",
        "annotationsOverrider", "fieldOverrider",
        "predicate", "component", "containerName", "fieldPath", "json", "yaml",
        "subPath", "path", "operator", "value",
    ))
}  # fmt: skip
"""The order in which Karmada prints the fields of an overrider."""


@dataclass(frozen=True, slots=True)
class OverridePolicies:
    """The policies there are: for every namespace, and for the namespace of the object."""

    cluster_wide: Sequence[Object] = ()
    namespaced: Sequence[Object] = ()


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """A rule that was applied, and the policy it is of."""

    policy: str
    overriders: Object


@dataclass(frozen=True, slots=True)
class Overridden:
    """A manifest as it is to be in one cluster, and the rules that made it so, in order."""

    manifest: Object
    cluster_wide: tuple[AppliedRule, ...] = ()
    namespaced: tuple[AppliedRule, ...] = ()


def override(manifest: Object, cluster: Traits, policies: OverridePolicies) -> Overridden:
    """Return the manifest for a cluster, with all policies applied, and the rules that were.

    Policies for every namespace come first, and the more exactly a policy names the object the
    later it comes: the last word is with whoever meant just this object.
    """
    wide = rules_for(manifest, cluster, policies.cluster_wide)
    own = rules_for(manifest, cluster, policies.namespaced)
    changed = manifest
    for rule in (*wide, *own):
        try:
            changed = apply_overriders(changed, rule.overriders)
        except OverrideFailed as error:
            raise OverrideFailed(f"override policy {rule.policy}: {error}") from error
    return Overridden(changed, wide, own)


def rules_for(
    manifest: Object, cluster: Traits, policies: Iterable[Object]
) -> tuple[AppliedRule, ...]:
    """Return the rules that apply to an object in a cluster, in the order they take effect."""
    matching: list[tuple[Precision, str, Object]] = []
    for policy in policies:
        try:
            selectors = selectors_of(policy)
        except MalformedSelector as error:
            raise OverrideFailed(f"override policy {name_of(policy)}: {error}") from error
        # A policy without selectors means everything.
        precision = best_precision(selectors, manifest) if selectors else Precision.EVERYTHING
        if precision is not Precision.NOT_MEANT:
            matching.append((precision, name_of(policy), policy))
    rules: list[AppliedRule] = []
    for _, name, policy in sorted(matching, key=lambda each: each[:2]):
        for index, rule in enumerate(rules_of(policy)):
            place = f"spec.overrideRules[{index}].targetCluster"
            try:
                affinity = read_affinity(rule.get("targetCluster"), place=place)
            except MalformedSelector as error:
                raise OverrideFailed(f"override policy {name}: {error}") from error
            if affinity.matches(cluster):
                rules.append(AppliedRule(name, rule.get("overriders") or {}))
    return tuple(rules)


def rules_of(policy: Object) -> tuple[Object, ...]:
    """Return the rules of a policy; the fields older policies have instead are one rule."""
    spec: Object = policy.get("spec") or {}
    rules: list[Object] = spec.get("overrideRules") or []
    if rules or not spec.get("overriders"):
        return tuple(rules)
    return ({"targetCluster": spec.get("targetCluster"), "overriders": spec["overriders"]},)


def applied_text(rules: Iterable[AppliedRule]) -> str:
    """Return the note of what was applied, as Works carry it; empty when nothing was."""
    noted = [
        {"policyName": rule.policy, "overriders": _in_order(rule.overriders)} for rule in rules
    ]
    return msgspec.json.encode(noted).decode() if noted else ""


def _in_order(value: Any) -> Any:
    """Return overriders with their fields in Karmada's order; what users wrote in its own."""
    if isinstance(value, list):
        return [_in_order(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("Object", value)
    ordered = sorted(fields, key=lambda key: _FIELD_ORDER.get(key, len(_FIELD_ORDER)))
    return {key: fields[key] if key == "value" else _in_order(fields[key]) for key in ordered}


def apply_overriders(manifest: Object, overriders: Object) -> Object:
    """Return the manifest as one rule changes it; OverrideFailed names what cannot be done.

    After every single overrider it is still the same object, with the same marks and grants. What
    admission let pass, or never saw, ends here.
    """
    for field, override in OVERRIDERS.items():
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
    current: Mapping[str, str] = metadata_of(manifest).get(field) or {}
    given: Mapping[str, str] = overrider.get("value") or {}
    match overrider["operator"]:
        case "add":
            changed = {**current, **given}
        case "replace":
            changed = {key: given.get(key, value) for key, value in current.items()}
        case _:
            changed = {key: value for key, value in current.items() if key not in given}
    return with_metadata(manifest, **{field: changed or None})


def override_image(manifest: Object, overrider: Object) -> Object:
    """Change the image of every container, or the one at the path the overrider names."""
    path = find_at(overrider, "predicate", "path")
    if path:
        image = _new_image(read_text_at(manifest, str(path)), overrider)
        change = Operation("replace", read_pointer(str(path)), (), image)
        return apply_json_patch(manifest, (change,))

    def edit(container: Object) -> Object:
        image = container.get("image")
        return {**container, "image": _new_image(image, overrider)} if image else container

    return _with_containers(manifest, edit)


def override_command(manifest: Object, overrider: Object) -> Object:
    """Add words to a container's command, or take them out."""
    return _override_words(manifest, overrider, "command")


def override_arguments(manifest: Object, overrider: Object) -> Object:
    """Add words to a container's arguments, or take them out."""
    return _override_words(manifest, overrider, "args")


def _new_image(image: str, overrider: Object) -> str:
    component, operator = str(overrider["component"]), str(overrider["operator"])
    return overridden_image(image, component, operator, str(overrider.get("value") or ""))


def _override_words(manifest: Object, overrider: Object, field: str) -> Object:
    words: Sequence[str] = overrider.get("value") or ()

    def edit(container: Object) -> Object:
        if container.get("name") != overrider["containerName"]:
            return container
        current: list[str] = container.get(field) or []
        is_added = overrider["operator"] == "add"
        kept = [word for word in current if word not in words]
        changed = [*current, *words] if is_added else kept
        if changed:
            return {**container, field: changed}
        return {key: each for key, each in container.items() if key != field}

    return _with_containers(manifest, edit)


def _with_containers(manifest: Object, edit: Callable[[Object], Object]) -> Object:
    """Return the manifest with every container edited; the same one for kinds that have none."""
    path = _CONTAINERS.get(kinds.kind_of(manifest))
    containers: list[Object] = find_at(manifest, *path) or [] if path else []
    if not path or not containers:
        return manifest
    return with_value(manifest, [edit(each) for each in containers], *path)


def read_text_at(manifest: Object, path: str) -> str:
    """Return the text at a JSON pointer; OverrideFailed when there is none."""
    value: Any = manifest
    try:
        for step in read_pointer(path):
            match value:
                case list():
                    value = cast("list[Any]", value)[int(step)]
                case dict():
                    value = cast("Object", value)[step]
                case _:
                    raise LookupError(step)
    except (ValueError, LookupError) as error:
        raise OverrideFailed(f"there is nothing at {path}") from error
    if not isinstance(value, str):
        raise OverrideFailed(f"there is no text at {path}")
    return value


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
            # One stands for the other, and both would be a riddle.
            version = _changed(image.tag or image.digest, operator, value)
            is_tag = bool(_TAG.fullmatch(version))
            if version and not is_tag and not _DIGEST.fullmatch(version):
                made = f"{value!r} makes {version!r} of the image's version"
                raise OverrideFailed(f"{made}: no tag and no digest")
            changed = replace(
                image, tag=version if is_tag else "", digest="" if is_tag else version
            )
    if not changed.repository:
        raise OverrideFailed(f"the image {text} would be left without a repository")
    return str(changed)


def _changed(current: str, operator: str, value: str) -> str:
    match operator:
        case "add":
            return current + value
        case "replace":
            return value
        case _:
            return ""


def override_document(manifest: Object, overrider: Object) -> Object:
    """Change the document a field holds as text, and leave the rest of the manifest alone."""
    path = str(overrider["fieldPath"])
    text = read_text_at(manifest, path)
    if overrider.get("json"):
        changed = write_json(_patched(read_json(text, path), overrider["json"]))
    elif overrider.get("yaml"):
        changed = write_yaml(_patched(read_yaml(text, path), overrider["yaml"]))
    else:
        return manifest
    return apply_json_patch(manifest, (Operation("replace", read_pointer(path), (), changed),))


def read_json(text: str, path: str) -> Any:
    """Read a JSON document; OverrideFailed when it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise OverrideFailed(f"the text at {path} is not JSON: {error}") from error


def read_yaml(text: str, path: str) -> Any:
    """Read a YAML document; OverrideFailed when it is none."""
    try:
        document, _ = compose_yaml(text.encode())
    except YamlFault as error:
        raise OverrideFailed(f"the text at {path} is not YAML: {error}") from error
    return document


def write_json(document: Any) -> str:
    """Write a document the way Kubernetes does: compact, its keys in order."""
    return _encoder.encode(document).decode()


def write_yaml(document: Any) -> str:
    """Write a document the way Kubernetes does: its keys in order, long texts as blocks."""
    return yaml.dump(
        document, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=2**31
    )


def _patched(document: Any, operations: list[Object]) -> Any:
    """Return the document with the operations carried out, each at its subPath."""
    # A document may be a list; a patch wants an object. So it is one field of a larger object.
    patch = [
        {
            "op": each["operator"],
            "path": f"/{_ROOT}{each['subPath']}",
            "value": each.get("value"),
        }
        for each in operations
    ]
    return apply_json_patch({_ROOT: document}, parse_json_patch(patch))[_ROOT]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


OVERRIDERS: Final[Mapping[str, Callable[[Object, Object], Object]]] = {
    "imageOverrider": override_image,
    "commandOverrider": override_command,
    "argsOverrider": override_arguments,
    "labelsOverrider": override_labels,
    "annotationsOverrider": override_annotations,
    "fieldOverrider": override_document,
    "plaintext": override_anything,
}
"""Karmada's order: plaintext last, so that it can undo what the others did."""
