"""Bindings are about one object of their own namespace, for life."""

from typing import Any

import pytest
from tests.unit.apiserver.hub_subjects import hub_state

from clusterspace.apis.crds import definitions
from clusterspace.apiserver.admission.propagation import BindingRules
from clusterspace.apiserver.custom_resources import resource_of
from clusterspace.apiserver.http.users import ANONYMOUS
from clusterspace.apiserver.state import Admission
from clusterspace.builtins.definitions import read_definition
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, with_metadata, with_value

SERVED = {
    (read.group, read.names.kind): resource_of(read, read.versions[0])
    for read in map(read_definition, definitions())
}


def binding(inside: str = "shop", **resource: Any) -> Object:
    named = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": "shop"}
    return {
        "kind": "ResourceBinding" if inside else "ClusterResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": inside},
        "spec": {"resource": {**named, **resource}},
    }


async def admitted(new: Object, old: Object | None = None, part: str = "") -> Object:
    served = SERVED["work.karmada.io", new["kind"]]
    return await BindingRules().admit(hub_state(), Admission(served, ANONYMOUS, new, old, part))


async def refused(new: Object, old: Object | None = None) -> set[str]:
    with pytest.raises(Invalid) as refusal:
        await admitted(new, old)
    assert refusal.value.details is not None
    return {cause.field for cause in refusal.value.details.causes}


async def test_a_binding_of_its_own_namespace_passes() -> None:
    fine = binding()

    assert await admitted(fine) is fine
    assert await admitted(binding("", kind="Namespace", apiVersion="v1", namespace=""))
    # A kind that nobody serves yet: its scope is asked for when something is to be placed.
    assert await admitted(binding(apiVersion="example.com/v1", kind="Widget"))


@pytest.mark.parametrize(
    "wrong",
    [
        binding(namespace="other"),
        binding(namespace=""),
        binding(kind="Namespace", apiVersion="v1"),
        binding("kube-system", namespace="kube-system"),
        binding(""),
        binding("", namespace=""),
    ],
)
async def test_a_binding_that_reaches_out_is_refused(wrong: Object) -> None:
    assert await refused(wrong) == {"spec.resource.namespace"}


async def test_a_kind_that_cannot_be_read_is_refused() -> None:
    assert await refused(binding(apiVersion="a/b/c")) == {"spec.resource.apiVersion"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("apiVersion", "batch/v1"), ("kind", "Job"), ("namespace", "other"), ("name", "api")],
)
async def test_a_binding_is_about_one_object_for_life(field: str, value: str) -> None:
    assert await refused(binding(**{field: value}), binding()) == {f"spec.resource.{field}"}


async def test_how_the_object_is_known_may_change() -> None:
    known = binding(apiVersion="apps/v2", uid="uid-2", resourceVersion="8")

    assert await admitted(known, binding(uid="uid-1", resourceVersion="7")) is known


async def test_a_binding_that_was_wrong_from_the_start_can_be_held_and_let_go() -> None:
    wrong = binding(namespace="other")
    held = with_metadata(wrong, finalizers=["x"])
    going = with_metadata(held, deletionTimestamp="now")

    assert await admitted(held, wrong)
    assert await admitted(with_value(going, "api", "spec", "resource", "name"), going)
    assert await admitted(binding(namespace="other"), wrong, "status")


async def test_bindings_of_placements_to_clusters_are_others() -> None:
    fleets = SERVED["placement.kubernetes-fleet.io", "ClusterResourceBinding"]
    new = {"metadata": {"name": "b"}, "spec": {"resource": {"namespace": "shop"}}}

    assert await BindingRules().admit(hub_state(), Admission(fleets, ANONYMOUS, new)) is new
