"""People are told whose an object of a member is: the hub's copy, a person's, another hub's."""

from typing import Any

import pytest

from clusterspace.apis import stamps
from clusterspace.fleet.execution.provenance import Difference, Write, explain_provenance
from clusterspace.kube.objects import Object, with_metadata, with_value
from clusterspace.testing.builders import deployment


def copy(work_id: str = "our-work") -> Object:
    return with_metadata(
        deployment("web", replicas=2),
        labels={stamps.MANAGED: "true", stamps.WORK_ID: work_id},
        annotations={stamps.WORK_NAMESPACE: "karmada-es-east", stamps.WORK_NAME: "web-1"},
    )


def work(**metadata: Any) -> Object:
    return {
        "metadata": {"namespace": "karmada-es-east", "name": "web-1", **metadata},
        "spec": {"workload": {"manifests": [copy()]}},
    }


def made_by(kind: str, name: str, **more: Any) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}}


def test_a_copy_names_the_migration_that_took_it_in():
    annotations = {**copy()["metadata"]["annotations"], stamps.MIGRATION: "west-1"}
    taken = with_metadata(copy(), annotations=annotations)

    found = explain_provenance(taken, (), work())

    assert found.summary.endswith(" Migration west-1 took it in as it ran.")


def test_a_copy_names_the_work_that_keeps_it():
    found = explain_provenance(copy(), (), work())

    assert found.is_copy
    assert found.work == "karmada-es-east/web-1"
    assert found.summary == (
        "It is the copy of Deployment default/web on the hub, and is as the hub wants it."
    )


def test_a_copy_that_somebody_scaled_says_what_differs_and_who_did_it():
    fields = {"f:spec": {"f:replicas": {}}}
    entry = {
        "manager": "kubectl",
        "operation": "Update",
        "apiVersion": "apps/v1",
        "time": "2026-11-15T12:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    scaled = with_metadata(with_value(copy(), 5, "spec", "replicas"), managedFields=[entry])

    found = explain_provenance(scaled, (), work())

    assert found.differs == (Difference("spec.replicas", ("kubectl",)),)
    assert found.writes == (Write("kubectl", "2026-11-15T12:00:00Z"),)
    assert "differs from it in 1 place" in found.summary


@pytest.mark.parametrize(
    ("live", "wanted", "says"),
    [
        (deployment("web"), None, "It was made on the cluster, and is not the hub's."),
        (deployment("web"), work(), "leaves this one alone"),
        (copy(), None, "of Work karmada-es-east/web-1, which is not on this hub"),
        (copy("other"), work(), "another hub or binding keeps"),
        (copy(), work(deletionTimestamp="2026-11-15T12:00:00Z"), "is being withdrawn"),
    ],
)
def test_whose_it_is_otherwise(live: Object, wanted: Object | None, says: str):
    found = explain_provenance(live, (), wanted)

    assert says in found.summary
    assert found.is_conflict is (wanted is not None and not found.is_copy)


def test_a_pod_is_traced_to_the_copy_that_made_it():
    pod, replica_set = made_by("Pod", "web-1-x"), made_by("ReplicaSet", "web-1")

    found = explain_provenance(pod, (replica_set, copy()), work())

    assert found.made_by == ("ReplicaSet web-1", "Deployment web")
    assert found.summary.startswith("It is made there by Deployment default/web, which is the copy")


def test_a_pod_of_a_deployment_made_by_hand_is_not_the_hubs():
    pod = made_by("Pod", "web-1-x")

    found = explain_provenance(pod, (deployment("web"),), None)

    assert found.summary == (
        "It was made on the cluster by Deployment default/web, which is not the hub's."
    )
