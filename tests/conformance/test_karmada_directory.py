"""The directory of somebody who uses Karmada: an object of every kind that people write, applied.

The YAML is ours, with the fields that Karmada's own documentation shows. Applied a second time
nothing changes, and nothing of what was written is lost.
"""

from pathlib import Path

import yaml

from clusterspace import apis
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import WriteOptions
from clusterspace.kube.objects import Object, find_at, name_of, namespace_of
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.hubs import client_for_test, hub_for_test

DIRECTORY = Path(__file__).parent / "karmada_directory"
GROUPS = ("karmada.io", "multicluster.x-k8s.io")
NOT_WRITTEN = {
    "Cluster": "a join writes it",
    "ClusterProfile": "the controllers write it",
    "ClusterResourceBinding": "the controllers write it",
    "ResourceBinding": "the controllers write it",
    "Work": "the controllers write it",
}


CRDS = [
    yaml.safe_load(each.read_text())
    for each in sorted((Path(apis.__file__).parent / "crds").glob("*.yaml"))
]
NAMES = [find_at(each, "spec", "names") for each in CRDS]
PLURALS = {
    "Namespace": "namespaces",
    "Deployment": "deployments",
    "Service": "services",
    **{each["kind"]: each["plural"] for each in NAMES},
}


def documents() -> list[Object]:
    return [
        each
        for name in ("workloads", "policies", "rest")
        for each in yaml.safe_load_all((DIRECTORY / f"{name}.yaml").read_text())
    ]


def test_every_kind_that_people_write_is_there() -> None:
    served = {
        find_at(crd, "spec", "names", "kind")
        for crd in CRDS
        if find_at(crd, "spec", "group").endswith(GROUPS)
    }

    assert {each["kind"] for each in documents()} >= served - {*NOT_WRITTEN}


async def test_all_of_it_applies_and_again_changes_nothing(tmp_path: Path) -> None:
    async with hub_for_test(tmp_path) as settings, client_for_test(settings) as hub:

        async def apply(wanted: Object) -> Object:
            group, _, version = str(wanted["apiVersion"]).rpartition("/")
            resource = GroupVersionResource(group, version, PLURALS[wanted["kind"]])
            path = ResourcePath(resource, namespace_of(wanted), name_of(wanted))
            return await hub.apply(path, wanted, WriteOptions(field_manager="kubectl"))

        first = [await apply(each) for each in documents()]
        second = [await apply(each) for each in documents()]

        assert [told(each) for each in second] == [told(each) for each in first]
        for wanted, stored in zip(documents(), first, strict=True):
            assert missing(wanted.get("spec", {}), stored.get("spec")) == []


def told(stored: Object) -> tuple[object, ...]:
    return stored["kind"], find_at(stored, "metadata", "generation"), stored.get("spec")


def missing(wanted: object, stored: object, path: str = "spec") -> list[str]:
    """Return where what was written is not what is stored; defaults may be added."""
    if isinstance(wanted, dict):
        inside = stored if isinstance(stored, dict) else {}
        return [
            each
            for key, value in wanted.items()
            for each in missing(value, inside.get(key), f"{path}.{key}")
        ]
    if isinstance(wanted, list):
        listed = stored if isinstance(stored, list) else []
        if len(listed) != len(wanted):
            return [path]
        pairs = enumerate(zip(wanted, listed, strict=True))
        return [each for at, (a, b) in pairs for each in missing(a, b, f"{path}[{at}]")]
    return [] if wanted == stored else [path]
