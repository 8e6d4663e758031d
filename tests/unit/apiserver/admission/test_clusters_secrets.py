"""Secrets are tied to where their Cluster is, in the write that makes them its own."""

from dataclasses import replace

import pytest
from tests.unit.apiserver.hub_subjects import hub_state

from clusterspace.apis.clusters import USED_WITH
from clusterspace.apis.crds import definitions
from clusterspace.apiserver.admission.clusters import ClusterSecrets, tie_all
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.forms import decode_stored
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.apiserver.writing import create_own
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, annotations_of, uid_of, with_metadata

ENDPOINT = "https://10.0.0.7:6443"
JOINER = User("joiner")


@pytest.fixture
async def hub() -> HubState:
    state = replace(hub_state(), catalog=Catalog(builtin_resources()), plugins=())
    controller = CustomResourceController(state)
    await controller.install(definitions())
    await controller.load()
    return state


def secrets_of(hub: HubState) -> Served:
    return hub.catalog.get_storage("", "secrets")


async def stored_cluster(hub: HubState, name: str = "west") -> Object:
    served = hub.catalog.get_storage("cluster.karmada.io", "clusters")
    endpoint = manifests.Endpoint(ENDPOINT)
    made = manifests.cluster(name, name, endpoint, manifests.NOWHERE)
    return decode_stored(await create_own(hub, served, made, "test"), served.form)


def secret(owner: Object | None = None, **annotations: str) -> Object:
    held = manifests.credentials_secret("west", {"token": b"secret"})
    owners = [manifests.owner_of_secrets(owner)] if owner else None
    return with_metadata(held, ownerReferences=owners, annotations=annotations or None)


async def admit(hub: HubState, new: Object, old: Object | None = None) -> str | None:
    admission = Admission(secrets_of(hub), JOINER, new, old)
    return annotations_of(await ClusterSecrets().admit(hub, admission)).get(USED_WITH)


async def test_a_secret_is_tied_in_the_write_that_gives_it_its_owner(hub: HubState) -> None:
    cluster = await stored_cluster(hub)

    assert await admit(hub, secret()) is None
    assert await admit(hub, secret(cluster), secret()) == ENDPOINT


async def test_a_note_is_kept_until_it_is_taken_away_or_the_owner_changes(hub: HubState) -> None:
    before = {**await stored_cluster(hub), "metadata": {"name": "west", "uid": "uid-before"}}
    cluster = await stored_cluster(hub, "west2")
    noted = {USED_WITH: "https://10.0.0.1"}

    assert await admit(hub, secret(cluster, **noted), secret(cluster, **noted)) == noted[USED_WITH]
    assert await admit(hub, secret(cluster), secret(cluster, **noted)) == ENDPOINT
    assert await admit(hub, secret(cluster, **noted), secret(before, **noted)) == ENDPOINT


async def test_an_owner_that_is_not_there_ties_nothing(hub: HubState) -> None:
    cluster = await stored_cluster(hub)
    gone = with_metadata(cluster, uid="uid-of-one-that-left")

    assert await admit(hub, secret(gone)) is None
    assert uid_of(gone) != uid_of(cluster)


async def test_what_an_earlier_version_stored_is_tied_when_the_hub_starts(hub: HubState) -> None:
    cluster = await stored_cluster(hub)
    served = secrets_of(hub)
    stored = await create_own(hub, served, secret(cluster), "test")
    for _ in range(2):  # and again at every start
        await tie_all(hub)
    entry = await hub.store.get(stored.key)

    assert entry is not None
    assert annotations_of(decode_stored(entry, served.form))[USED_WITH] == ENDPOINT
