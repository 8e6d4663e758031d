"""A kind of somebody else's, as the tests of other people's clients define it."""

from typing import Any, Final

GROUP: Final = "shop.example.com"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def widget_definition(plural: str) -> dict[str, Any]:
    """Return a CustomResourceDefinition; tests use plurals of their own to keep apart."""
    singular = plural.removesuffix("s")
    properties = {
        "size": {"type": "integer", "minimum": 1},
        "color": {"type": "string", "default": "red"},
    }
    spec = {"type": "object", "properties": properties, "required": ["size"]}
    column = {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "spec": spec,
                    "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
                },
            }
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": singular, "kind": singular.capitalize()},
            "versions": [version],
        },
    }


def widget(kind: str, name: str, size: int) -> dict[str, Any]:
    """Return an object of the kind."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"size": size},
    }
