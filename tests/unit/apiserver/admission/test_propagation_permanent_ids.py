"""IDs of policies, bindings and works: given once, kept, never changed."""

from typing import Any

import pytest
from tests.unit.apiserver.hub_subjects import hub_state

from clusterspace.apis.crds import definitions
from clusterspace.apiserver.admission.propagation import LABELS, PermanentIds
from clusterspace.apiserver.catalog import Served
from clusterspace.apiserver.custom_resources import resource_of
from clusterspace.apiserver.http.users import ANONYMOUS
from clusterspace.apiserver.state import Admission
from clusterspace.builtins.definitions import read_definition
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, labels_of

SERVED = {
    (read.group, read.names.kind): resource_of(read, read.versions[0])
    for read in map(read_definition, definitions())
}


def subject(labels: dict[str, str] | None = None) -> Object:
    return {"metadata": {"name": "web", **({"labels": labels} if labels else {})}}


async def admitted(served: Served, new: Object, old: Object | None = None) -> Any:
    return await PermanentIds().admit(hub_state(), Admission(served, ANONYMOUS, new, old))


@pytest.mark.parametrize("kind", LABELS, ids=lambda kind: kind[1])
async def test_a_new_object_gets_an_id_and_one_that_lost_it_gets_it_back(
    kind: tuple[str, str],
) -> None:
    label = LABELS[kind]

    made = await admitted(SERVED[kind], subject({"app": "web"}))
    kept = await admitted(SERVED[kind], subject({"app": "shop"}), made)

    assert labels_of(made)["app"] == "web"
    assert labels_of(made)[label]
    assert labels_of(kept) == {"app": "shop", label: labels_of(made)[label]}


async def test_an_id_cannot_be_changed() -> None:
    work = ("work.karmada.io", "Work")
    old = subject({LABELS[work]: "one"})

    with pytest.raises(Invalid, match="field is immutable"):
        await admitted(SERVED[work], subject({LABELS[work]: "two"}), old)


async def test_other_kinds_are_left_alone() -> None:
    cluster = SERVED["cluster.karmada.io", "Cluster"]
    new = subject()

    assert await admitted(cluster, new) is new
