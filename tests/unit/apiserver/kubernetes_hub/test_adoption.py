"""Definitions that are there already are taken as they are, or refused with the sentence why."""

from typing import Any

import pytest

from clusterspace.apis.crds import definition
from clusterspace.apiserver.kubernetes_hub.adoption import (
    missing_fields,
    refusal_of,
    unknown_versions,
)
from clusterspace.kube.objects import Object

BINDINGS = definition("resourcebindings", "work.karmada.io")
WORKS = definition("works", "work.karmada.io")


def with_versions(crd: Object, *versions: Object) -> Object:
    return {**crd, "spec": {**crd["spec"], "versions": list(versions)}}


def version(crd: Object, **fields: Any) -> Object:
    return {**crd["spec"]["versions"][0], **fields}


def test_our_own_definition_is_usable() -> None:
    assert refusal_of(WORKS, WORKS) == ""
    assert missing_fields(WORKS, WORKS) == ()


def test_an_older_version_beside_ours_is_karmadas_and_known() -> None:
    older = version(BINDINGS, name="v1alpha1", storage=False)

    assert refusal_of(with_versions(BINDINGS, older, version(BINDINGS)), BINDINGS) == ""


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        (with_versions(WORKS, version(WORKS), version(WORKS, name="v2")), "with version v2, which"),
        (with_versions(WORKS, version(WORKS, served=False)), "does not serve version v1alpha1"),
        ({**WORKS, "spec": {**WORKS["spec"], "scope": "Cluster"}}, "as another kind: Work, of the"),
        (with_versions(WORKS, version(WORKS, subresources={})), "has to have a status subresource"),
        (
            with_versions(
                BINDINGS,
                version(BINDINGS, name="v1alpha1", storage=True),
                version(BINDINGS, storage=False),
            ),
            "is stored there in version v1alpha1 without a conversion webhook",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(theirs: Object, says: str) -> None:
    ours = BINDINGS if theirs["metadata"] == BINDINGS["metadata"] else WORKS

    assert says in refusal_of(theirs, ours)


def test_a_later_version_of_ours_is_not_taken_back() -> None:
    later = with_versions(WORKS, version(WORKS), version(WORKS, name="v1beta1", storage=False))

    assert "take a newer Clusterspace" in unknown_versions(later, WORKS)
    assert unknown_versions(WORKS, WORKS) == ""
