"""kubectl against a running hub: exit codes, and effects read back through the API."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.hubs import RunningHub
from tests.conformance.kubectl_claims import Command
from tests.conformance.kubectl_commands import COMMANDS, runs_no_pods
from tests.conformance.kubectl_page import PAGE, render_page
from tests.conformance.kubectl_stage import Stage, Stages, deployment, find_program, write_editor
from tests.conformance.widgets import GROUP, widget, widget_definition
from tests.corpus import corpus_dir

LONG = "60s"
"""A kubectl timeout nobody should have to wait for."""


@pytest.fixture(scope="module")
def stages(shared_hub: RunningHub, tmp_path_factory: pytest.TempPathFactory) -> Stages:
    find_program("kubectl")
    return Stages(shared_hub, tmp_path_factory.mktemp("kubectl"))


@pytest.fixture
def open_stage(stages: Stages, hub: RunningHub) -> Callable[..., Stage]:
    """Open stages on a hub that must not log errors meanwhile."""
    assert hub.url
    return stages.open


@pytest.fixture
def stage(open_stage: Callable[..., Stage]) -> Stage:
    """Give a stage with the Deployment `web` on it."""
    opened = open_stage()
    opened.furnish(["web"])
    return opened


def next_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def until_watching(process: "subprocess.Popen[str]") -> None:
    """Wait until a `get -w -v=6` has its watch: the first state on it is shown to nobody."""
    assert process.stderr is not None
    while line := process.stderr.readline():
        if "watch=true" in line and "200 OK" in line:
            return
    raise AssertionError("kubectl ended before it watched")


def merge_metadata(stage: Stage, resource: str, name: str, **metadata: Any) -> None:
    stage.hub.patch(stage.path(resource, name), {"metadata": metadata})


def test_every_recorded_command_is_tried_with_the_recorded_exit_code() -> None:
    recorded = json.loads((corpus_dir() / "kubectl-requests.json").read_text())
    ours = {f"kubectl {command.text}".replace("NS", "t"): command for command in COMMANDS}

    assert [each["command"] for each in recorded if each["command"] not in ours] == []
    unlike = [
        each["command"]
        for each in recorded
        if ours[each["command"]].exit_code != each["exit"] and not ours[each["command"]].differs
    ]
    assert unlike == []


def test_the_page_says_what_is_tried_here() -> None:
    assert PAGE.read_text() == render_page(), (
        "docs/kubectl.md is stale: run .venv/bin/python -m tests.conformance.kubectl_page"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.text)
def test_a_command_ends_and_acts_as_the_table_says(
    command: Command, open_stage: Callable[..., Stage]
) -> None:
    if " diff " in command.text:
        find_program("diff")
    stage = open_stage(with_namespace=command.given is not None)
    stage.furnish(command.given or ())
    if command.after:
        assert stage.kubectl(command.after).exit_code == 0

    ran = stage.kubectl(f"{command.text} {command.flags}")

    assert ran.exit_code == command.exit_code, ran
    assert command.sentence in ran.error
    for check in command.checks:
        check(stage, ran)


def test_delete_returns_when_the_finalizer_is_gone_and_not_before(stage: Stage) -> None:
    merge_metadata(stage, "deployments", "web", finalizers=["example.com/hold"])

    with stage.start(f"-n NS delete deploy web --timeout={LONG}") as deleting:
        assert "deleted" in next_line(deleting)
        with pytest.raises(subprocess.TimeoutExpired):
            deleting.wait(timeout=0.5)
        assert stage.read("deployments", "web")["metadata"]["deletionTimestamp"]
        merge_metadata(stage, "deployments", "web", finalizers=None)
        assert deleting.wait(timeout=10) == 0

    assert not stage.exists("deployments", "web")


def test_wait_returns_when_the_condition_comes_true(stage: Stage) -> None:
    with stage.start(
        f"-n NS wait --for=condition=Available deploy/web --timeout={LONG}"
    ) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=0.5)
        available = {"type": "Available", "status": "True"}
        stage.hub.patch(
            stage.path("deployments", "web") + "/status", {"status": {"conditions": [available]}}
        )

        assert waiting.wait(timeout=10) == 0
        assert next_line(waiting) == "deployment.apps/web condition met\n"


def test_wait_for_delete_returns_when_the_object_is_gone(stage: Stage) -> None:
    with stage.start(f"-n NS wait --for=delete deploy/web --timeout={LONG}") as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=0.5)
        stage.hub.ask("DELETE", stage.path("deployments", "web"))

        assert waiting.wait(timeout=10) == 0


@pytest.mark.parametrize("selection", ["deploy", "deploy web", "deploy -l app=web"])
def test_a_watching_get_shows_each_change_as_it_happens(stage: Stage, selection: str) -> None:
    with stage.start(f"-n NS get {selection} -w -v=6") as watching:
        assert next_line(watching).split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
        assert next_line(watching).split()[:2] == ["web", "0/2"]
        until_watching(watching)
        stage.hub.patch(stage.path("deployments", "web"), {"spec": {"replicas": 6}})
        assert next_line(watching).split()[:2] == ["web", "0/6"]
        watching.terminate()


def test_a_watching_get_with_events_names_what_happened(stage: Stage) -> None:
    columns = "custom-columns=R:.object.spec.replicas,T:.type"
    with stage.start(f"-n NS get deploy -w --output-watch-events -o {columns}") as watching:
        assert next_line(watching).split() == ["R", "T"]
        assert next_line(watching).split() == ["2", "ADDED"]
        stage.hub.patch(stage.path("deployments", "web"), {"spec": {"replicas": 6}})
        assert next_line(watching).split() == ["6", "MODIFIED"]
        stage.hub.ask("DELETE", stage.path("deployments", "web"))
        assert next_line(watching).split() == ["6", "DELETED"]
        watching.terminate()


@pytest.mark.parametrize("way", ["", "--server-side"])
def test_apply_removes_what_the_manifest_no_longer_says(
    open_stage: Callable[..., Stage], way: str
) -> None:
    stage = open_stage()
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    file = stage.directory / "x.json"
    file.write_text(json.dumps({**manifest, "data": {"kept": "1", "dropped": "2"}}))
    assert stage.kubectl(f"-n NS apply {way} -f {file}").exit_code == 0
    stage.hub.patch(stage.path("configmaps", "x"), {"data": {"foreign": "3"}})

    file.write_text(json.dumps({**manifest, "data": {"kept": "1"}}))
    assert stage.kubectl(f"-n NS apply {way} -f {file}").exit_code == 0

    assert stage.read("configmaps", "x")["data"] == {"kept": "1", "foreign": "3"}


def test_server_side_apply_names_the_manager_it_would_overrule(stage: Stage) -> None:
    assert stage.kubectl("-n NS scale deploy web --replicas=5").exit_code == 0

    ran = stage.kubectl("-n NS apply --server-side --field-manager=team -f DIR/d.yaml")

    assert ran.exit_code == 1
    assert (
        'conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas'
        in ran.error
    )
    assert stage.read("deployments", "web")["spec"]["replicas"] == 5


def test_an_unknown_field_is_refused_by_name(open_stage: Callable[..., Stage]) -> None:
    stage = open_stage()
    spec = {**deployment(2)["spec"], "replica": 3}
    (stage.directory / "typo.json").write_text(json.dumps({**deployment(2), "spec": spec}))

    refused = stage.kubectl("-n NS create -f DIR/typo.json")
    warned = stage.kubectl("-n NS create --validate=warn -f DIR/typo.json")

    assert refused.exit_code == 1
    assert 'strict decoding error: unknown field "spec.replica"' in refused.error
    assert warned.exit_code == 0
    assert 'Warning: unknown field "spec.replica"' in warned.error


def test_an_edit_that_changes_nothing_writes_nothing(stage: Stage) -> None:
    write_editor(stage.directory, "s/nothing/something/")

    ran = stage.kubectl("-n NS edit deploy web")

    assert ran.exit_code == 0
    assert "Edit cancelled, no changes made." in ran.error
    assert stage.read("deployments", "web")["metadata"]["generation"] == 1


def test_an_edit_the_hub_refuses_says_why_and_writes_nothing(stage: Stage) -> None:
    write_editor(stage.directory, "s/replicas: .*/replicas: -1/")

    ran = stage.kubectl("-n NS edit deploy web")

    assert ran.exit_code == 1
    assert 'deployments.apps "web" is invalid' in ran.error
    seen = (stage.directory / "seen").read_text()
    assert "# * spec.replicas: Invalid value: -1: must be greater than" in seen
    assert stage.read("deployments", "web")["spec"]["replicas"] == 2


def replica_set(stage: Stage, revision: int, image: str) -> dict[str, Any]:
    """Return what a cluster's Deployment controller would leave of one revision."""
    web = stage.read("deployments", "web")
    labels = {"app": "web", "pod-template-hash": str(revision)}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "controller": True}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "web", "image": image}]},
    }
    return {
        "metadata": {
            "name": f"web-{revision}",
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
            "ownerReferences": [{**owner, "uid": web["metadata"]["uid"]}],
        },
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def test_rollout_undo_works_once_somebody_keeps_revisions(stage: Stage) -> None:
    stage.create("replicasets", replica_set(stage, 1, "nginx:1.26"))
    stage.create("replicasets", replica_set(stage, 2, "nginx:1.27"))

    ran = stage.kubectl("-n NS rollout undo deploy web")

    assert ran.exit_code == 0, ran
    containers = stage.read("deployments", "web")["spec"]["template"]["spec"]["containers"]
    assert [each["image"] for each in containers] == ["nginx:1.26"]


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_delete_takes_the_owned_objects_along(stage: Stage, cascade: str) -> None:
    stage.create("replicasets", replica_set(stage, 1, "nginx:1.26"))

    ran = stage.kubectl(f"-n NS delete deploy web --cascade={cascade} --timeout={LONG}")
    owned = stage.kubectl(f"-n NS wait --for=delete rs/web-1 --timeout={LONG}")

    assert (ran.exit_code, owned.exit_code) == (0, 0)
    assert not stage.exists("replicasets", "web-1")


def test_delete_can_leave_the_owned_objects_behind(stage: Stage) -> None:
    stage.create("replicasets", replica_set(stage, 1, "nginx:1.26"))

    ran = stage.kubectl(f"-n NS delete deploy web --cascade=orphan --timeout={LONG}")

    assert ran.exit_code == 0
    assert "ownerReferences" not in stage.read("replicasets", "web-1")["metadata"]


@pytest.mark.parametrize(
    ("command", "stream"),
    [
        ("logs p", "log"),
        ("exec p -- ls", "exec"),
        ("attach p", "attach"),
        ("port-forward p 18082:80", "portforward"),
        ("cp p:/etc/hosts DIR/x", "exec"),
    ],
)
def test_a_pod_that_runs_elsewhere_is_named_as_such(
    open_stage: Callable[..., Stage], command: str, stream: str
) -> None:
    stage = open_stage()
    stage.furnish(["p"])
    stage.hub.patch(stage.path("pods", "p") + "/status", {"status": {"phase": "Running"}})

    ran = stage.kubectl(f"-n NS {command}")

    assert ran.exit_code == 1
    assert runs_no_pods(stream) in ran.error


def test_a_custom_resource_does_not_take_the_name_of_a_built_in_one(
    open_stage: Callable[..., Stage],
) -> None:
    stage = open_stage()
    (stage.directory / "crd.json").write_text(json.dumps(widget_definition("cronjobs")))

    assert stage.kubectl("apply -f DIR/crd.json").exit_code == 0
    awaited = f"wait --for=condition=Established crd/cronjobs.{GROUP} --timeout={LONG}"
    assert stage.kubectl(awaited).exit_code == 0
    made = stage.kubectl("-n NS create cronjob mine --image=i --schedule=@daily")
    assert "cronjob.batch/mine created" in made.output

    assert stage.kubectl("-n NS get cronjobs -o name").output.strip() == "cronjob.batch/mine"
    assert stage.kubectl(f"-n NS get cronjobs.{GROUP} -o name").output.strip() == ""
    assert stage.kubectl(f"delete crd/cronjobs.{GROUP}").exit_code == 0


def test_a_kind_of_ones_own_is_a_kind_like_any_other(open_stage: Callable[..., Stage]) -> None:
    stage = open_stage()
    (stage.directory / "crd.json").write_text(json.dumps(widget_definition("doodads")))
    (stage.directory / "one.json").write_text(json.dumps(widget("Doodad", "one", 3)))
    (stage.directory / "bad.json").write_text(json.dumps(widget("Doodad", "bad", 0)))

    for command, said in (
        ("apply -f DIR/crd.json", "doodads.shop.example.com created"),
        (f"wait --for=condition=Established crd/doodads.{GROUP} --timeout={LONG}", "condition met"),
        ("api-resources --api-group=shop.example.com", "Doodad"),
        ("explain doodads", "APIVersion defines"),
        ("explain doodads.metadata", "CreationTimestamp is a timestamp"),
        ("explain doodads.spec.size", "FIELD: size <integer>"),
        ("explain doodads.spec --output=plaintext-openapiv2", "size\t<integer>"),
        ("explain pods.spec --output=plaintext-openapiv2", "containers\t<[]Object> -required-"),
        ("-n NS apply -f DIR/one.json", "doodad.shop.example.com/one created"),
        ("-n NS apply --server-side -f DIR/one.json", "one serverside-applied"),
        ("-n NS get doodads", "NAME   SIZE\none    3"),
        ("-n NS describe doodad one", "Color:  red"),
        ('-n NS patch doodad one --type=merge -p {"spec":{"size":4}}', "patched"),
        ("-n NS label doodad one a=b", "labeled"),
        ("-n NS get doodad one -o jsonpath={.spec.size}", "4"),
    ):
        ran = stage.kubectl(command)
        assert ran.exit_code == 0, ran
        assert said in ran.output
    refused = stage.kubectl("-n NS apply -f DIR/bad.json")
    assert refused.exit_code == 1
    assert "spec.size: Invalid value: 0: spec.size in body should be greater" in refused.error

    deleted = stage.kubectl(f"delete -f DIR/crd.json --timeout={LONG}")

    assert deleted.exit_code == 0, deleted
    assert stage.hub.ask("GET", f"/apis/{GROUP}/v1/doodads").status == 404
