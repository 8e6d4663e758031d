"""`clusterspace init` on a real kube-apiserver: planned, done, done again, and taken back."""

import asyncio
import os
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner, Result

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.crds import definition, definitions
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apiserver.kubernetes_hub import manifests
from clusterspace.cli.main import main
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions
from clusterspace.client.settings import ConnectionSettings
from clusterspace.errors import ApiError, CannotInstall, NotFound
from clusterspace.kube.objects import Object, find_at, labels_of, name_of, uid_of, with_metadata
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.init import (
    Action,
    InitRequest,
    Plan,
    initialize,
    place_of,
    plan_installation,
)
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.hubs import client_for_test, hub_for_test, real_server_for_test
from clusterspace.testing.steps import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

CRDS = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
SECRETS = GroupVersionResource("", "v1", "secrets")
AUTHORITY = ResourcePath(SECRETS, manifests.NAMESPACE, manifests.AUTHORITY_SECRET)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ConnectionSettings]:
    async with real_server_for_test(tmp_path_factory.mktemp("real"), name="hub") as server:
        yield server.settings


@pytest_asyncio.fixture(loop_scope="module")
async def client(real: ConnectionSettings) -> AsyncGenerator[ClusterClient]:
    async with client_for_test(real) as opened:
        yield opened


async def run(settings: ConnectionSettings, **asked: Any) -> Plan:
    request = InitRequest("https://127.0.0.1:1", **asked)
    return await initialize(request, settings, lambda _: None)


def actions(plan: Plan) -> set[Action]:
    return {step.action for step in plan.steps}


async def test_a_plan_names_what_would_be_made_and_makes_nothing(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    plan = await run(real, is_dry_run=True)

    assert actions(plan) == {Action.CREATE}
    assert len(plan.steps) > len(definitions())
    assert await client.list_objects(ResourcePath(CRDS)) == []


async def test_every_kind_is_accepted_as_it_is_and_a_second_run_changes_nothing(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    await run(real)

    stored = {name_of(each): each for each in await client.list_objects(ResourcePath(CRDS))}
    assert set(stored) == {name_of(each) for each in definitions()}
    for each in stored.values():
        conditions: list[Object] = find_at(each, "status", "conditions") or []
        bad = [
            c for c in conditions if c["type"] == "NonStructuralSchema" and c["status"] == "True"
        ]
        assert not bad, (name_of(each), bad)
    again = await run(real)
    assert actions(again) == {Action.UNCHANGED}, again.counted()


async def test_what_somebody_changed_is_put_back_and_what_they_added_stays(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    place = ResourcePath(
        GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles"),
        name="clusterspace-fleet",
    )
    role = await client.get(place)
    changed = with_metadata({**role, "rules": []}, labels={**labels_of(role), "team": "a"})
    await client.update(place, changed)

    plan = await run(real)

    assert [step.subject for step in plan.steps if step.action is Action.UPDATE] == [
        "ClusterRole clusterspace-fleet"
    ]
    repaired = await client.get(place)
    assert repaired["rules"] == role["rules"]
    assert labels_of(repaired)["team"] == "a"


async def test_it_is_taken_back_without_an_object_of_a_user_and_can_be_made_again(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    await run(real, is_removal=True)
    policy: Object = {
        "apiVersion": PROPAGATION_POLICIES.api_version,
        "kind": "PropagationPolicy",
        "metadata": {"name": "mine", "namespace": "default"},
        "spec": {"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]},
    }
    place = ResourcePath(PROPAGATION_POLICIES, "default", "mine")
    # Policies and webhooks are gone a moment after they were deleted.
    stored = await until(lambda: _created(client, place, policy))

    again = await run(real, is_removal=True)

    assert actions(again) == {Action.KEEP}
    assert uid_of(await client.get(place)) == uid_of(stored)
    assert len(await client.list_objects(ResourcePath(CRDS))) == len(definitions())
    assert await client.find(AUTHORITY) is None
    made = await run(real)
    assert actions(made) == {Action.CREATE, Action.UNCHANGED}
    await run(real, is_removal=True)


async def _created(client: ClusterClient, place: ResourcePath, body: Object) -> Object | None:
    try:
        return await client.create(place.collection, body)
    except ApiError:
        return await client.find(place)


async def replace_definition(
    client: ClusterClient, name: str, change: Callable[[Object], Object]
) -> None:
    """Have a definition as somebody else would have made it."""
    ours = next(each for each in definitions() if name_of(each) == name)
    place = place_of(ours)
    existing = await client.find(place)
    if existing is not None:
        await client.delete(place, DeleteOptions(uid_of(existing)))

        async def is_gone() -> bool:
            try:
                await client.get(place)
            except NotFound:
                return True
            return False

        await until(is_gone)
    await client.create(place.collection, change(ours))


def with_older_version(crd: Object) -> Object:
    """Return a definition as Karmada has it: an older version is served beside, none is stored."""
    newest = crd["spec"]["versions"][0]
    older = {**newest, "name": "v1alpha1", "storage": False}
    return {**crd, "spec": {**crd["spec"], "versions": [older, newest]}}


async def test_definitions_of_karmada_are_used_as_they_are(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    name = "resourcebindings.work.karmada.io"
    await replace_definition(client, name, with_older_version)

    plan = await run(real)

    adopted = [step for step in plan.steps if step.action is Action.ADOPT]
    assert [name_of(step.manifest) for step in adopted] == [name]
    stored = await client.get(place_of(definition("resourcebindings", "work.karmada.io")))
    assert [each["name"] for each in stored["spec"]["versions"]] == ["v1alpha1", "v1alpha2"]
    await run(real, is_removal=True)


async def test_a_version_that_nobody_here_knows_is_refused_before_anything_is_written(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    def newer(crd: Object) -> Object:
        versions = crd["spec"]["versions"]
        later = {**versions[0], "name": "v1beta1", "storage": False}
        return {**crd, "spec": {**crd["spec"], "versions": [*versions, later]}}

    await replace_definition(client, "works.work.karmada.io", newer)

    with pytest.raises(CannotInstall, match="with version v1beta1, which this version of") as said:
        await run(real)

    assert "take a newer Clusterspace" in str(said.value)
    assert await client.find(AUTHORITY) is None


async def test_a_definition_without_our_fields_is_named_with_what_is_lost(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    def older(crd: Object) -> Object:
        read: Any = yaml.safe_load(yaml.safe_dump(crd))
        spec = read["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        del spec["properties"]["suspendDispatching"]
        return read

    await replace_definition(client, "works.work.karmada.io", older)

    plan = await run(real, is_dry_run=True)

    noted = [step.note for step in plan.steps if step.note]
    assert any("it has no fields spec.suspendDispatching" in each for each in noted), noted


async def test_somebody_elses_object_under_our_name_is_a_refusal(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    roles = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
    metadata = {"name": "clusterspace-fleet"}
    body = {"apiVersion": roles.api_version, "kind": "ClusterRole", "metadata": metadata}
    theirs = await client.create(ResourcePath(roles), {**body, "rules": []})

    with pytest.raises(CannotInstall, match="was not made by `clusterspace init`"):
        await run(real)

    await client.delete(
        ResourcePath(roles, name="clusterspace-fleet"), DeleteOptions(uid_of(theirs))
    )


async def test_our_own_hub_needs_none_of_it(tmp_path: Path) -> None:
    async with hub_for_test(tmp_path) as settings:
        with pytest.raises(CannotInstall, match="has all of this built in"):
            await run(settings)


def definitions_of_karmada() -> list[Object]:
    tree = os.environ.get("CONFORMANCE_KARMADA_TREE")
    if not tree:
        pytest.skip("no sources of Karmada: set CONFORMANCE_KARMADA_TREE to where they are")
    files = sorted((Path(tree) / "charts" / "karmada" / "_crds" / "bases").rglob("*.yaml"))
    read = [yaml.safe_load(file.read_text()) for file in files]
    return [each for each in read if each["kind"] == "CustomResourceDefinition"]


async def test_karmadas_own_definitions_are_adopted_all(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    """Where Karmada's sources are: every definition it ships, in every version it has."""
    names: set[str] = set()
    for theirs in definitions_of_karmada():
        names.add(name_of(theirs))
        await replace_definition(client, name_of(theirs), lambda _, theirs=theirs: theirs)

    plan = await run(real, is_dry_run=True)

    adopted = {name_of(step.manifest) for step in plan.steps if step.action is Action.ADOPT}
    assert names <= adopted
    assert all(not step.note for step in plan.steps), [s.note for s in plan.steps if s.note]


async def test_the_command_shows_its_plan_and_says_what_is_wrong(
    real: ConnectionSettings, tmp_path: Path
) -> None:
    cluster = {"server": real.server, "insecure-skip-tls-verify": True}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "real",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "real", "user": {"token": real.identity.token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
    }
    file = tmp_path / "admin.yaml"
    file.write_text(yaml.safe_dump(config))
    asked = ["init", "--hub-kubeconfig", str(file), "--dry-run"]

    def invoke(*more: str) -> Result:
        return CliRunner().invoke(main, [*asked, *more])

    shown = await asyncio.to_thread(invoke)
    document = await asyncio.to_thread(invoke, "-o", "yaml")
    wrong = await asyncio.to_thread(invoke, "--webhook-url", "http://10.0.0.1")

    assert shown.exit_code == 0, shown.output
    assert "MutatingWebhookConfiguration clusterspace" in shown.output
    listed = yaml.safe_load(document.stdout)
    assert {"ValidatingAdmissionPolicy", "ServiceAccount"} <= {e["kind"] for e in listed["items"]}
    assert wrong.exit_code == 2
    assert "API servers call no other" in wrong.output


async def test_the_authority_of_the_webhook_is_replaced_in_time_and_the_old_one_still_trusted(
    real: ConnectionSettings, client: ClusterClient
) -> None:
    await replace_definition(client, "works.work.karmada.io", lambda ours: ours)
    await run(real)
    first = await client.get(AUTHORITY)

    in_years = ManualClock(SystemClock().now() + 9 * 365 * 24 * 3600.0)
    plan = await plan_installation(client, in_years)

    later = next(step.manifest for step in plan.steps if step.manifest["kind"] == "Secret")
    bundle, before = (b64decode(each["data"]["ca.crt"]) for each in (later, first))
    assert bundle.endswith(before)
    assert bundle != before
