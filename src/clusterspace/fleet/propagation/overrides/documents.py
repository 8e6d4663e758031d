"""JSON and YAML kept as text in a field, such as a file in a ConfigMap."""

from typing import Any, Final

import msgspec
import yaml

from clusterspace.apiserver.http.documents import YamlFault, compose_yaml
from clusterspace.errors import OverrideFailed
from clusterspace.fleet.propagation.overrides.containers import read_text_at
from clusterspace.kube.json_pointers import read_pointer
from clusterspace.kube.objects import Object
from clusterspace.kube.patches.json_patch import Operation, apply_json_patch, parse_json_patch

_encoder: Final = msgspec.json.Encoder(order="deterministic")
_ROOT: Final = "document"


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
