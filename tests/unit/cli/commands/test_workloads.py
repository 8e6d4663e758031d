"""What `clusterspace why` draws: good in green, bad in red, the rest out of the way."""

import io

import pytest
from rich.console import Console

from clusterspace.cli.commands.workloads import listing_of, tree_of
from clusterspace.fleet.propagation.explanation import (
    BindingNote,
    ClusterNote,
    ConditionNote,
    Explanation,
    PolicyNote,
    Standing,
    WorkNote,
)

GREEN, RED, YELLOW = "\x1b[32m", "\x1b[31m", "\x1b[33m"
SCHEDULED = BindingNote("web-deployment", ConditionNote("True", "Success", ""), ConditionNote())
PLACED = Standing.PLACED


def drawn(told: Explanation) -> list[str]:
    screen = io.StringIO()
    Console(file=screen, force_terminal=True, color_system="standard", width=120).print(
        tree_of(told)
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
            "applied by Work w: Healthy, 2/2 ready",
        ),
        (
            WorkNote("w", is_applied=True, health="Unhealthy"),
            YELLOW,
            "applied by Work w: Unhealthy",
        ),
        (WorkNote("w", is_applied=True), GREEN, "applied by Work w: no report yet"),
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

    (line,) = listing_of(with_work(work)).lines

    assert line.name == "east"
    assert line.cells == ("east", "placed", "1", "exists already", "")
    assert line.wide_cells == ("w", "exists already")
