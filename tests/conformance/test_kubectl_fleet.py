"""kubectl on the unified view: the right object in the right cluster, and no other touched."""

import subprocess
import time
from collections.abc import Generator, Iterator

import msgspec
import pytest
from _pytest.mark.structures import ParameterSet
from tests.conformance.fleets import RunningFleet, running_fleet
from tests.conformance.hubs import PATIENCE
from tests.conformance.kubectl_claims import Command
from tests.conformance.kubectl_fleet_commands import COMMANDS, OF_THE_FLEET
from tests.conformance.kubectl_fleet_stage import FleetStage, FleetStages, Form
from tests.conformance.kubectl_stage import deployment, find_program
from tests.conformance.widgets import DEFINITIONS, widget_definition

from clusterspace.fleet.membership import manifests

BOTH = pytest.mark.parametrize("form", list(Form), ids=lambda form: form.value)


FLEETS = (
    pytest.param((("west",), ()), id="push"),
    pytest.param((("east",), ()), id="pull", marks=pytest.mark.slow),
    pytest.param((("east", "west"), ("east",)), id="pull-kubernetes", marks=pytest.mark.slow),
)
"""Which members are asked through their agents, and which are a kube-apiserver. Commands are about
`east`, which is dialled every day; those about all clusters reach both, as streams do."""


@pytest.fixture(scope="module", params=FLEETS)
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[RunningFleet]:
    find_program("kubectl")
    pull, real = request.param
    with running_fleet(tmp_path_factory.mktemp("fleet"), pull=pull, real=real) as running:
        yield running
        assert running.server.errors() == []


@pytest.fixture(scope="module")
def stages(fleet: RunningFleet, tmp_path_factory: pytest.TempPathFactory) -> FleetStages:
    return FleetStages(fleet, tmp_path_factory.mktemp("kubectl"))


def run(command: Command, stage: FleetStage) -> None:
    """Run a command, and see that it ended and acted as the table says."""
    if " diff " in command.text:
        find_program("diff")
    for first in filter(None, command.after.split("; ")):
        prepared = stage.kubectl(first)
        assert prepared.exit_code == 0, prepared

    ran = stage.kubectl(f"{command.text} {command.flags}")

    assert ran.exit_code == command.exit_code, ran
    assert stage.place(command.sentence) in ran.error
    for check in command.checks:
        check(stage, ran)


def said_either_way() -> Iterator[ParameterSet]:
    """Yield each command in both forms: in one every day, in turns, in the other when it is slow.

    What differs between the forms is how a name is read, and each of them is read by half of all.
    """
    for number, command in enumerate(COMMANDS):
        for place, form in enumerate(Form):
            is_daily = number % len(Form) == place
            marks = () if is_daily else (pytest.mark.slow,)
            yield pytest.param(command, form, id=f"{command.text}-{form.value}", marks=marks)


@pytest.mark.parametrize(("command", "form"), list(said_either_way()))
def test_a_command_acts_in_the_cluster_it_says_and_nowhere_else(
    command: Command, form: Form, stages: FleetStages
) -> None:
    stage = stages.open(form)
    stage.furnish(command.given or ())
    before = stage.elsewhere()

    run(command, stage)

    assert stage.elsewhere() == before


@pytest.mark.parametrize("command", OF_THE_FLEET, ids=lambda command: command.text)
def test_a_command_about_all_clusters_reaches_all(command: Command, stages: FleetStages) -> None:
    stage = stages.open(Form.NAMES)
    stage.furnish(command.given or ())

    run(command, stage)


def test_explain_knows_a_kind_that_only_a_member_has(
    fleet: RunningFleet, stages: FleetStages
) -> None:
    stage = stages.open(Form.NAMES)
    fleet.members["west"].create(DEFINITIONS, widget_definition("trinkets"))
    # What clusters serve is asked for again after five seconds.
    deadline = time.monotonic() + PATIENCE
    while (explained := stage.kubectl("explain trinkets.spec.size")).exit_code:
        assert time.monotonic() < deadline, explained
    listed = stage.kubectl("-n NS get trinkets")

    assert "FIELD: size <integer>" in explained.output
    assert (listed.exit_code, "No resources found" in listed.error) == (0, True), listed


def test_get_ns_or_create_ns_makes_a_namespace_that_only_a_member_has(
    fleet: RunningFleet, stages: FleetStages
) -> None:
    stage = stages.open(Form.NAMES)
    fleet.members["west"].create("/api/v1/namespaces", {"metadata": {"name": "onlym"}})

    looked = stage.kubectl("get ns onlym")
    made = stage.kubectl("create ns onlym")
    filled = stage.kubectl("-n onlym create cm first")
    named = stage.kubectl("get ns onlym.clusterspace.west -o name")

    assert looked.exit_code == 1
    assert 'namespaces "onlym" not found' in looked.error
    assert (made.exit_code, filled.exit_code) == (0, 0), (made, filled)
    assert named.output == "namespace/onlym.clusterspace.west\n"


def test_apply_prune_leaves_copies_and_hand_made_objects_of_members_alone(
    fleet: RunningFleet, stages: FleetStages
) -> None:
    """Copies have their template's labels, and its last-applied annotation."""
    stage = stages.open(Form.NAMES)
    manifest = stage.directory / "api.yaml"
    api = deployment(1, name="api")
    selected = {**api, "metadata": {"name": "api", "labels": {"app": "api"}}}
    manifest.write_text(msgspec.yaml.encode(selected).decode())
    applied = stage.kubectl("-n NS apply -f DIR/api.yaml")
    assert applied.exit_code == 0, applied
    template = fleet.hub.get(stage.path("deployments", "api"))
    copied = {key: template["metadata"][key] for key in ("labels", "annotations")}
    for name, labels in (
        ("api", {**copied["labels"], "karmada.io/managed": "true"}),
        ("by-hand", copied["labels"]),
    ):
        metadata = {"name": name, "labels": labels, "annotations": copied["annotations"]}
        stage.hub.create(stage.path("deployments"), {**api, "metadata": metadata})
    stale = {"name": "stale", **copied}
    fleet.hub.create(stage.path("deployments"), {**api, "metadata": stale})

    pruned = stage.kubectl("-n NS apply --prune -l app=api -f DIR/api.yaml")

    assert pruned.exit_code == 0, pruned
    assert "deployment.apps/stale pruned" in pruned.output
    assert "clusterspace" not in pruned.output
    assert "1 on members is left alone (east: 1)" in pruned.error
    assert stage.exists("deployments", "api")
    assert stage.exists("deployments", "by-hand")


@BOTH
def test_delete_returns_when_the_finalizer_is_gone_and_not_before(
    form: Form, stages: FleetStages
) -> None:
    stage = stages.open(form)
    stage.furnish(["web"])
    path = stage.path("deployments", "web")
    stage.hub.patch(path, {"metadata": {"finalizers": ["example.com/hold"]}})

    with stage.start("-n NS@ delete deploy web@ --timeout=60s") as deleting:
        assert deleting.stdout is not None
        assert "deleted" in deleting.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            deleting.wait(timeout=1)
        assert stage.read("deployments", "web")["metadata"]["deletionTimestamp"]
        stage.hub.patch(path, {"metadata": {"finalizers": None}})
        assert deleting.wait(timeout=20) == 0

    assert not stage.exists("deployments", "web")
    assert all(other.exists("deployments", "web") for other in stage.others)


def test_a_wait_for_the_end_of_something_unreachable_does_not_succeed(
    fleet: RunningFleet, stages: FleetStages
) -> None:
    """A cluster that cannot be asked has not lost its objects."""
    stage = stages.open(Form.NAMES)
    cluster = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "lost"},
        "spec": {
            "syncMode": "Push",
            "apiEndpoint": "https://127.0.0.1:1",
            "insecureSkipTLSVerification": True,
            "secretRef": {"namespace": "karmada-cluster", "name": "lost"},
            "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "lost"},
        },
    }
    secrets = "/api/v1/namespaces/karmada-cluster/secrets"
    made = fleet.hub.create("/apis/cluster.karmada.io/v1alpha1/clusters", cluster)
    metadata = {"name": "lost", "ownerReferences": [manifests.owner_of_secrets(made)]}
    fleet.hub.create(secrets, {"metadata": metadata, "data": {"token": "eA=="}})
    try:
        impatient = "--timeout=2s --request-timeout=2s"
        waited = stage.kubectl(f"-n NS wait --for=delete deploy/web.clusterspace.lost {impatient}")
        deleted = stage.kubectl(f"-n NS delete deploy web.clusterspace.lost {impatient}")
        listed = stage.kubectl("-n NS get deploy")
    finally:
        fleet.hub.ask("DELETE", "/apis/cluster.karmada.io/v1alpha1/clusters/lost")
        fleet.hub.ask("DELETE", f"{secrets}/lost")

    assert (waited.exit_code, deleted.exit_code) == (1, 1)
    assert waited.output == ""
    assert "not found" not in deleted.error.lower()
    assert listed.exit_code == 0
    assert "Warning: the answer is incomplete: 1 of 4 clusters unreachable: lost" in listed.error
