"""A webhook that interprets is sent what it is asked about, and its answers are judged."""

from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest
from tests.component.interpreter_answerer import Answerer, patched, running_answerer

from clusterspace.apis.interpreters import (
    SCRIPT_FIELDS,
    webhook_configuration_causes,
)
from clusterspace.client.endpoints import AddressRules
from clusterspace.client.webhooks import Webhooks
from clusterspace.errors import InterpretationFailed
from clusterspace.fleet.interpretation.webhooks import ask
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionKind

SITE: Object = {
    "apiVersion": "shop.example.com/v1",
    "kind": "Site",
    "metadata": {"name": "front", "namespace": "shop"},
    "spec": {"size": 3},
}
NEEDED = {"apiVersion": "v1", "kind": "Secret", "namespace": "shop", "name": "key"}
HERE = Webhooks(AddressRules(allowed=(ip_network("127.0.0.0/8"),)))


@pytest.fixture
async def answerer() -> AsyncIterator[Answerer]:
    async with running_answerer() as made:
        yield made


async def test_each_operation_is_asked_and_answered_as_karmada_does(answerer: Answerer) -> None:
    size = {"op": "replace", "path": "/spec/size", "value": 1}
    answers: dict[str, tuple[tuple[Any, ...], Object, Any]] = {
        "InterpretReplica": ((), {"replicas": 3}, (3, None)),
        "InterpretComponent": ((), {"components": [{"name": "a"}]}, ([{"name": "a"}],)),
        "InterpretDependency": (
            (),
            {"dependencies": [{"kind": "Secret"}]},
            ([{"kind": "Secret"}],),
        ),
        "InterpretHealth": ((), {"healthy": False}, (False,)),
        "InterpretStatus": ((), {"rawStatus": {"up": 1}}, ({"up": 1},)),
        "ReviseReplica": ((1,), patched(size), ({**SITE, "spec": {"size": 1}},)),
        "Retain": ((SITE,), {}, (SITE,)),
        "AggregateStatus": (([{"clusterName": "west"}],), {}, (SITE,)),
    }
    assert answers.keys() == SCRIPT_FIELDS.keys()
    for operation, (more, said, expected) in answers.items():
        answerer.says = lambda _, said=said: said

        assert await ask(HERE, answerer.webhook, operation, SITE, *more) == expected

    first = answerer.asked[0]
    assert (first["apiVersion"], first["kind"]) == (
        "config.karmada.io/v1alpha1",
        "ResourceInterpreterContext",
    )
    assert first["request"]["kind"] == {
        "group": "shop.example.com",
        "version": "v1",
        "kind": "Site",
    }
    requests = {each["request"]["operation"]: each["request"] for each in answerer.asked}
    assert requests["ReviseReplica"]["replicas"] == 1
    assert requests["Retain"]["observedObject"] == SITE
    assert requests["AggregateStatus"]["aggregatedStatus"] == [{"clusterName": "west"}]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"uid": "another"}, "to another request"),
        ({"successful": False, "status": {"message": "no room", "code": 500}}, "no room"),
        ({}, "has no replicas"),
        ({"replicas": "3"}, "has no replicas"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_none(
    answerer: Answerer, said: Object, why: str
) -> None:
    answerer.says = lambda _: said

    with pytest.raises(InterpretationFailed, match=why):
        await ask(HERE, answerer.webhook, "InterpretReplica", SITE)


async def test_a_webhook_is_not_called_where_no_member_may_be(answerer: Answerer) -> None:
    with pytest.raises(InterpretationFailed, match="could not be asked"):
        await ask(Webhooks(), answerer.webhook, "InterpretReplica", SITE)

    assert answerer.asked == []


def test_a_webhook_is_asked_about_what_its_rules_name() -> None:
    webhook = Answerer("Site").webhook

    assert webhook.interprets("Retain", GroupVersionKind("shop.example.com", "v1", "Site"))
    assert not webhook.interprets("Retain", GroupVersionKind("shop.example.com", "v2", "Site"))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"name": "sites"}, "webhooks[0].name"),
        ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds"),
        ({"clientConfig": {}}, "webhooks[0].clientConfig"),
        ({"clientConfig": {"url": "http://x.example"}}, "webhooks[0].clientConfig.url"),
        ({"interpreterContextVersions": ["v1"]}, "webhooks[0].interpreterContextVersions"),
        ({"rules": [{"operations": ["Guess"]}]}, "webhooks[0].rules[0].operations[0]"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_with_its_place(
    change: Object, place: str
) -> None:
    answerer = Answerer("Site")
    answerer.url = "https://sites.example.com/interpret"
    well = answerer.configuration
    bad = {**well, "webhooks": [{**well["webhooks"][0], **change}]}

    assert list(webhook_configuration_causes(well)) == []
    assert place in [each.field for each in webhook_configuration_causes(bad)]
