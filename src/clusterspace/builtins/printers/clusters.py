"""Clusters, as Karmada's API server shows them: a definition's columns could not say all of it."""

from typing import Final

from clusterspace.builtins.printers.cells import (
    AGE,
    NAME,
    NONE,
    joined,
    printer,
    shown,
    text,
    texts_at,
    wide,
)
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at


def _ready(cluster: Object) -> str:
    """Return what the Ready condition says; nobody knows of a cluster that has none."""
    found = find_condition(find_at(cluster, "status", "conditions"), "Ready") or {}
    return str(found.get("status") or "Unknown")


CLUSTERS: Final = printer(
    NAME,
    text("Version", "status", "kubernetesVersion"),
    text("Mode", "spec", "syncMode"),
    shown("Ready", _ready),
    AGE,
    wide("Zones", lambda cluster: joined(texts_at(cluster, "spec", "zones"))),
    wide("Region", lambda cluster: find_at(cluster, "spec", "region") or NONE),
    wide("Provider", lambda cluster: find_at(cluster, "spec", "provider") or NONE),
    wide("API-Endpoint", lambda cluster: find_at(cluster, "spec", "apiEndpoint") or ""),
    wide("Proxy-URL", lambda cluster: find_at(cluster, "spec", "proxyURL") or NONE),
)
