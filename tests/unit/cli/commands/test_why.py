"""What `clusterspace why` draws: good in green, bad in red, the rest out of the way."""

import io

import pytest
from rich.console import Console

from clusterspace.cli.commands.why import listing_of, member_tree_of, tree_of
from clusterspace.fleet.execution.provenance import Difference, Provenance, Write
from clusterspace.fleet.propagation.explanation import (
    BindingNote,
    ClusterNote,
    ConditionNote,
    Explanation,
    LiveNote,
    PolicyNote,
    Standing,
    WorkNote,
)
from clusterspace.kube.times import parse_time
from clusterspace.roots.why import MemberExplanation

GREEN, RED, YELLOW = "\x1b[32m", "\x1b[31m", "\x1b[33m"
SCHEDULED = BindingNote("web-deployment", ConditionNote("True", "Success", ""), ConditionNote())
PLACED = Standing.PLACED
NOW = parse_time("2026-11-15T12:02:00Z")


def drawn(told: Explanation | MemberExplanation) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, force_terminal=True, color_system="standard", width=120).print(
        tree_of(told, NOW) if isinstance(told, Explanation) else member_tree_of(told, NOW)
    )
    return screen.getvalue().splitlines()


def with_work(work: WorkNote | None) -> Explanation:
    note = ClusterNote("east", PLACED, replicas=1, work=work)
    return Explanation("Deployment", "default", "web", binding=SCHEDULED, clusters=(note,))


@pytest.mark.parametrize(
    ("work", "colour", "words"),
    [
        (
            WorkNote("w", is_applied=True, health="Healthy", reported="2/2 ready"),
            GREEN,
            "applied by Work w: Healthy, 2/2 ready, as last reported",
        ),
        (
            WorkNote("w", is_applied=True, health="Unhealthy"),
            YELLOW,
            "applied by Work w: Unhealthy, as last reported",
        ),
        (
            WorkNote("w", is_applied=True),
            GREEN,
            "applied by Work w: no report yet",
        ),
        (WorkNote("w", is_applied=False, message="exists already"), RED, "exists already"),
        (WorkNote("w", is_applied=False), YELLOW, "Work w waits for the cluster"),
    ],
)
def test_the_state_of_a_cluster_shows_in_its_colour(work: WorkNote, colour: str, words: str):
    assert f"{colour}{words}" in drawn(with_work(work))[-1]


def test_what_changes_it_on_the_way_and_what_holds_it_back_is_shown():
    work = WorkNote("w", is_applied=False, is_suspended=True, overrides=("OverridePolicy red",))

    lines = "\n".join(drawn(with_work(work)))

    assert "changed by" in lines
    assert "OverridePolicy red" in lines
    assert f"{YELLOW}dispatching is suspended" in lines


def test_policies_that_lost_stand_under_the_one_followed():
    told = Explanation(
        "Deployment",
        "",
        "web",
        policy=PolicyNote("PropagationPolicy", "default/mine", 5, "selects it by name"),
        other_policies=(PolicyNote("ClusterPropagationPolicy", "all", 0, "comes later"),),
    )

    screen = "\n".join(drawn(told))

    assert ": selects it by name, priority 5" in screen
    assert screen.index("default/mine") < screen.index("all")


def test_why_nothing_was_scheduled_is_shown_in_red():
    failed = BindingNote(
        "web-deployment", ConditionNote("False", "NoClusterFit", "0/2 fit."), ConditionNote()
    )

    lines = drawn(Explanation("Deployment", "", "web", binding=failed))

    assert f"{RED}NoClusterFit" in lines[-2]
    assert f"{RED}0/2 fit." in lines[-1]


def test_why_no_work_was_written_is_shown_in_red():
    refused = BindingNote(
        "web-deployment",
        ConditionNote("True", "Success", ""),
        ConditionNote(),
        ConditionNote("False", "PropagationForbidden", "it stays"),
    )

    lines = drawn(Explanation("Deployment", "", "web", binding=refused))

    assert f"{RED}it stays" in lines[-1]


def test_a_table_has_a_line_for_each_cluster():
    work = WorkNote("w", is_applied=False, message="exists already")

    (line,) = listing_of(with_work(work), NOW).lines

    assert line.name == "east"
    assert line.cells == ("east", "placed", "1", "exists already", "")
    assert line.wide_cells == ("w", "exists already")


APPLIED = WorkNote(
    "w", is_applied=True, health="Healthy", reported="2/2 ready", since="2026-11-15T12:00:00Z"
)
SILENT = ConditionNote("False", "ClusterNotReachable", "", "2026-11-15T12:00:30Z")


def test_what_a_frozen_member_reported_is_shown_with_its_age():
    note = ClusterNote("east", PLACED, work=APPLIED, ready=SILENT)

    lines = drawn(Explanation("Deployment", "default", "web", binding=SCHEDULED, clusters=(note,)))

    assert f"{RED}east does not answer: ClusterNotReachable (Ready=False for 90s)" in lines[-2]
    assert f"{YELLOW}applied by Work w 2m ago: Healthy, 2/2 ready, as last reported" in lines[-1]


def test_what_a_member_says_itself_is_shown_as_of_now_with_what_differs():
    live = LiveNote(is_there=True, reported="1/2 ready", differs=("spec.replicas",))
    note = ClusterNote("east", PLACED, work=APPLIED, ready=ConditionNote("True"), live=live)

    lines = drawn(Explanation("Deployment", "default", "web", binding=SCHEDULED, clusters=(note,)))

    assert f"{GREEN}applied by Work w 2m ago: Healthy, 1/2 ready, now" in lines[-2]
    assert f"{YELLOW}not as the hub wants it: spec.replicas" in lines[-1]


def test_paused_deletions_are_shown_with_the_command_that_goes_on():
    work = WorkNote("w", is_applied=True, going_since="2026-11-15T12:01:00Z")
    note = ClusterNote("east", Standing.WITHDRAWING, work=work, pause="20 of 30 objects")

    screen = "\n".join(drawn(Explanation("Deployment", "", "web", clusters=(note,))))

    assert "withdrawn 60s ago, and still there" in screen
    assert "deletions are paused: 20 of 30 objects" in screen
    assert "`clusterspace resume east` lets them go on" in screen


def test_a_conflict_is_shown_with_what_can_be_done():
    work = WorkNote("w", is_applied=False, message="resource already exists in the cluster")
    note = ClusterNote("east", PLACED, work=work)
    shown = drawn(Explanation("Deployment", "shop", "web", binding=SCHEDULED, clusters=(note,)))

    screen = " ".join(line.strip("│├└─ ") for line in shown)

    assert "`clusterspace promote deployment web -n shop -C east --dry-run`" in screen
    assert "`conflictResolution: Overwrite`" in screen


def test_an_object_of_a_member_is_shown_with_whose_it_is():
    provenance = Provenance(
        "It is a copy.",
        is_copy=True,
        work="karmada-es-east/w",
        made_by=("ReplicaSet web-1", "Deployment web"),
        differs=(Difference("spec.replicas", ("kubectl",)),),
        writes=(Write("kubectl", "2026-11-15T12:00:00Z"),),
    )

    screen = "\n".join(drawn(MemberExplanation("Pod", "shop", "web-1-x", "east", provenance)))

    assert "It is a copy." in screen
    assert "spec.replicas is not as the hub wants it, set by kubectl" in screen
    assert "written by kubectl 2m ago" in screen
    assert screen.index("ReplicaSet web-1") < screen.index("Deployment web")


def test_a_member_that_does_not_answer_is_said_to_and_what_the_hub_knows_follows():
    template = with_work(APPLIED)

    screen = "\n".join(
        drawn(MemberExplanation("Pod", "shop", "x", "east", trouble="silent", template=template))
    )

    assert "east does not answer: silent." in screen
    assert "what follows is what the hub knows of it" in screen
    assert "applied by Work w" in screen
