"""FederatedHPAs and CronFederatedHPAs: completed and checked."""

from typing import Any

import pytest

from clusterspace.apis.autoscalers import (
    completed_federated_hpa,
    cron_causes,
    federated_hpa_causes,
)
from clusterspace.kube.objects import Object

WEB = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
AUTOSCALER = {
    "apiVersion": "autoscaling.karmada.io/v1alpha1",
    "kind": "FederatedHPA",
    "name": "web",
}


def cron(*rules: Object, target: Object = WEB) -> Object:
    return {"spec": {"scaleTargetRef": target, "rules": list(rules)}}


def rule(**fields: Any) -> Object:
    return {"name": "morning", "schedule": "0 8 * * *", "targetReplicas": 5, **fields}


def test_a_federated_hpa_is_completed_as_kubernetes_completes_its_own() -> None:
    completed = completed_federated_hpa({"spec": {"scaleTargetRef": WEB, "maxReplicas": 4}})

    assert completed["spec"]["minReplicas"] == 1
    assert completed["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 80
    assert list(federated_hpa_causes(completed)) == []


def test_a_federated_hpa_that_means_nothing_is_refused_with_the_place() -> None:
    wrong = completed_federated_hpa(
        {"spec": {"scaleTargetRef": {**WEB, "name": ""}, "maxReplicas": 2, "minReplicas": 3}}
    )

    assert [each.field for each in federated_hpa_causes(wrong)] == [
        "spec.maxReplicas",
        "spec.scaleTargetRef.name",
    ]


def test_rules_for_workloads_and_for_bounds_are_taken() -> None:
    bounds = {"name": "night", "schedule": "@daily", "targetMaxReplicas": 2}

    assert list(cron_causes(cron(rule(), rule(name="none", targetReplicas=0)))) == []
    assert list(cron_causes(cron(bounds, target=AUTOSCALER))) == []


@pytest.mark.parametrize(
    ("written", "fields"),
    [
        (cron(rule(), rule()), ["spec.rules[1].name"]),
        (cron(rule(schedule="every morning")), ["spec.rules[0].schedule"]),
        (cron(rule(timeZone="Nowhere/At_All")), ["spec.rules[0].timeZone"]),
        (cron(rule(targetReplicas=None)), ["spec.rules[0].targetReplicas"]),
        (cron(rule(targetReplicas=-1)), ["spec.rules[0].targetReplicas"]),
        (cron(rule(targetMinReplicas=1)), ["spec.rules[0].targetMinReplicas"]),
        (cron(target={**WEB, "kind": ""}), ["spec.scaleTargetRef.kind"]),
        (cron(target={**AUTOSCALER, "kind": "Deployment"}), ["spec.scaleTargetRef.kind"]),
        (
            cron({"name": "a", "schedule": "@daily"}, target=AUTOSCALER),
            ["spec.rules[0].targetMaxReplicas"],
        ),
        (
            cron(
                {
                    "name": "a",
                    "schedule": "@daily",
                    "targetReplicas": 3,
                    "targetMinReplicas": 4,
                    "targetMaxReplicas": 2,
                },
                target=AUTOSCALER,
            ),
            ["spec.rules[0].targetReplicas", "spec.rules[0].targetMinReplicas"],
        ),
        (
            cron({"name": "a", "schedule": "@daily", "targetMinReplicas": 0}, target=AUTOSCALER),
            ["spec.rules[0].targetMinReplicas"],
        ),
    ],
)
def test_a_rule_that_means_nothing_is_refused_with_the_place(
    written: Object, fields: list[str]
) -> None:
    assert [each.field for each in cron_causes(written)] == fields
