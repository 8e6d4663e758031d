"""Fields that are two names for one thing: writing one writes the other.

A kube-apiserver keeps each such value once and shows it under both names, as part of reading an
object, so this happens before any default is filled in.
"""

import base64
from typing import Final, cast

from clusterspace.builtins.defaults.rules import Rule, Rules, in_sequence, missing
from clusterspace.kube.objects import Object

_CORE: Final = "io.k8s.api.core.v1"


def _secret(secret: Object) -> Object:
    """Move `stringData`, which is written and never read, into `data`."""
    texts = cast("dict[str, str]", secret.get("stringData") or {})
    if not texts:
        return secret
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    kept = {key: held for key, held in secret.items() if key != "stringData"}
    return {**kept, "data": {**(secret.get("data") or {}), **encoded}}


def _service_account(pod_spec: Object) -> Object:
    """Show the account under its old name too; the new name wins."""
    name = pod_spec.get("serviceAccountName") or pod_spec.get("serviceAccount")
    if not name or (pod_spec.get("serviceAccount") == pod_spec.get("serviceAccountName")):
        return pod_spec
    return {**pod_spec, "serviceAccountName": name, "serviceAccount": name}


def _first_of(single: str, plural: str, element: str) -> Rule:
    """Return a rule that keeps a single value and the first of a list of structs in step."""

    def fill(struct: Object) -> Object:
        listed = cast("list[Object]", struct.get(plural) or [])
        if not listed and struct.get(single):
            return {**struct, plural: [{element: struct[single]}]}
        if listed and listed[0].get(element) and not struct.get(single):
            return {**struct, single: listed[0][element]}
        return struct

    return fill


def _node_addresses(spec: Object) -> Object:
    """Keep the one range and the list of ranges in step; the one wins."""
    ranges, first = cast("list[str]", spec.get("podCIDRs") or []), spec.get("podCIDR")
    if first and ranges[:1] != [first]:
        return {**spec, "podCIDRs": [first]}
    if ranges and not first:
        return {**spec, "podCIDR": ranges[0]}
    return spec


RULES: Final[Rules] = {
    f"{_CORE}.Secret": in_sequence(_secret, missing(type="Opaque")),
    f"{_CORE}.PodSpec": _service_account,
    f"{_CORE}.PodStatus": in_sequence(
        _first_of("podIP", "podIPs", "ip"), _first_of("hostIP", "hostIPs", "ip")
    ),
    f"{_CORE}.NodeSpec": _node_addresses,
}
