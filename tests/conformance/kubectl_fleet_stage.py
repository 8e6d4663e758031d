"""Where a kubectl command is tried on the unified view: objects of `east`, seen from the fleet.

Commands and files say NAME@ and NS@. With the cluster in the names that is `web.clusterspace.east`
in the namespace as it is; with the cluster in the namespace it is `web` in
`demo.clusterspace.east`. What a command did is read on `east` itself.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.conformance.fleets import RunningFleet
from tests.conformance.kubectl_stage import FURNITURE, Object, Stage, Stages, config_map, deployment

CLUSTER: Final = "east"
_PLACED: Final = re.compile(r"([A-Za-z0-9-]+)@")


class Form(Enum):
    """Where a command says the cluster."""

    NAMES = "in the name"
    NAMESPACE = "in the namespace"

    def say(self, text: str) -> str:
        """Return the text with the cluster where this form says it.

        >>> Form.NAMES.say("-n NS@ get deploy web@")
        '-n NS get deploy web.clusterspace.east'
        >>> Form.NAMESPACE.say("-n NS@ get deploy web@")
        '-n NS.clusterspace.east get deploy web'
        """

        def placed(found: re.Match[str]) -> str:
            is_namespace = found[1] == "NS"
            is_said = is_namespace is (self is Form.NAMESPACE)
            return f"{found[1]}.clusterspace.{CLUSTER}" if is_said else found[1]

        return _PLACED.sub(placed, text)


FILES: Final = {
    "d.yaml": deployment(2, name="web@"),
    "d2.yaml": deployment(3, name="web@"),
    "list.yaml": {
        "apiVersion": "v1",
        "kind": "List",
        "items": [deployment(2, name="web@"), config_map("x@", "b")],
    },
    "kept.yaml": config_map("kept", "b", app="web"),
    "both.yaml": {
        "apiVersion": "v1",
        "kind": "List",
        "items": [config_map("kept", "b", app="web"), config_map("stale", "b", app="web")],
    },
    "policy.yaml": {
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "web"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
            "placement": {"clusterAffinity": {"clusterNames": ["nowhere"]}},
        },
    },
}
"""What `-f DIR/…` names."""


@dataclass(frozen=True)
class FleetStage(Stage):
    """A namespace in every cluster of a fleet; `hub` is the one cluster the command is about."""

    form: Form
    others: tuple[Stage, ...]
    """The same namespace in the other clusters, with the same objects."""

    def place(self, text: str) -> str:
        """Fill in the cluster, this stage's namespace and its folder."""
        return super().place(self.form.say(text))

    def furnish(self, names: Iterable[str]) -> None:
        """Create the named objects in every cluster: a command must find the right one."""
        wanted = tuple(names)
        for stage in self.others:
            stage.furnish(wanted)
        super().furnish(wanted)

    def elsewhere(self) -> list[Any]:
        """Return what people wrote into the other clusters: nothing of it may change."""
        return [
            {kind: each[kind] for kind in ("metadata", "spec", "data") if kind in each}
            for stage in self.others
            for resource in ("deployments", "configmaps")
            for each in map(_without_status, stage.hub.get(stage.path(resource))["items"])
            if each["metadata"]["name"] != "kube-root-ca.crt"
        ]


def _without_status(kube_object: Object) -> Any:
    """Return an object without what controllers and servers note on it."""
    kept = ("name", "labels", "generation")
    metadata = {key: kube_object["metadata"].get(key) for key in kept}
    return {**kube_object, "metadata": metadata}


class FleetStages:
    """Stages on one fleet, one after the other."""

    def __init__(self, fleet: RunningFleet, directory: Path) -> None:
        self._fleet = fleet
        self._stages = Stages(fleet.cluster(CLUSTER), directory, fleet.server.kubeconfig)

    def open(self, form: Form) -> FleetStage:
        """Return a stage in a namespace nobody used before."""
        opened = self._stages.open()
        others = [self._fleet.hub, *(
            member for name, member in self._fleet.members.items() if name != CLUSTER
        )]  # fmt: skip
        for cluster in others:
            cluster.create("/api/v1/namespaces", {"metadata": {"name": opened.namespace}})
        for name, kube_object in FILES.items():
            text = form.say(msgspec.yaml.encode(kube_object).decode())
            (opened.directory / name).write_text(text)
        return FleetStage(
            opened.hub,
            opened.namespace,
            opened.directory,
            opened.environment,
            form,
            tuple(replace(opened, hub=cluster) for cluster in others),
        )


__all__ = ["CLUSTER", "FURNITURE", "FleetStage", "FleetStages", "Form"]
