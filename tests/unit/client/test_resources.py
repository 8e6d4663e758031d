from typing import Any

import pytest

from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import (
    DeleteOptions,
    PatchType,
    Propagation,
    WriteOptions,
    refuse_blind_patch,
    refuse_blind_update,
)
from clusterspace.errors import BlindWrite
from clusterspace.testing.builders import PODS, pod

WEB = ResourcePath(PODS, "default", "web")
PINNED: dict[str, Any] = {"metadata": {"resourceVersion": "5"}}


@pytest.mark.parametrize(
    ("patch_type", "patch"),
    [
        (PatchType.MERGE, PINNED),
        (PatchType.STRATEGIC, PINNED),
        (PatchType.APPLY, {}),
        (PatchType.JSON, [{"op": "test", "path": "/metadata/resourceVersion", "value": "5"}]),
        (PatchType.JSON, [{"op": "replace", "path": "/metadata/resourceVersion", "value": "5"}]),
    ],
)
def test_a_patch_that_names_its_version_or_owns_its_fields_may_be_sent(
    patch_type: PatchType, patch: Any
):
    refuse_blind_patch(WEB, patch_type, patch)


@pytest.mark.parametrize(
    ("patch_type", "patch"),
    [
        (PatchType.MERGE, {}),
        (PatchType.MERGE, {"metadata": {"resourceVersion": ""}}),
        (PatchType.MERGE, {"metadata": {"resourceVersion": None}}),
        (PatchType.STRATEGIC, {"spec": {}}),
        (PatchType.STRATEGIC, []),
        (PatchType.JSON, []),
        (PatchType.JSON, PINNED),
        (PatchType.JSON, [{"op": "remove", "path": "/metadata/resourceVersion"}]),
        (PatchType.JSON, [{"op": "test", "path": "/metadata/resourceVersion", "value": ""}]),
        (PatchType.JSON, ["nonsense"]),
    ],
)
def test_a_blind_patch_is_refused(patch_type: PatchType, patch: Any):
    with pytest.raises(BlindWrite, match="pods default/web"):
        refuse_blind_patch(WEB, patch_type, patch)


def test_a_blind_update_is_refused():
    refuse_blind_update(WEB, pod("web", resourceVersion="5"))

    with pytest.raises(BlindWrite):
        refuse_blind_update(WEB, pod("web"))


def test_a_delete_names_the_object_it_is_meant_for():
    options = DeleteOptions(
        uid="u", resource_version="5", propagation=Propagation.ORPHAN, grace_seconds=0
    )

    assert options.body(WEB) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "5"},
        "propagationPolicy": "Orphan",
        "gracePeriodSeconds": 0,
    }
    with pytest.raises(BlindWrite):
        DeleteOptions(uid="").body(WEB)


def test_write_options_become_a_query():
    forced = WriteOptions(force=True, is_dry_run=True, field_validation="Strict")

    assert dict(forced.query("us")) == {
        "fieldManager": "us",
        "dryRun": "All",
        "fieldValidation": "Strict",
        "force": "true",
    }
    assert WriteOptions(field_manager="me").query("us") == (("fieldManager", "me"),)
