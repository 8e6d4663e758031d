"""The kubectl commands that look into pods, on the unified view, and what each must do."""

import re
from typing import Final

from tests.conformance.kubectl_checks import Check, makes, prints
from tests.conformance.kubectl_claims import Command, fails, works
from tests.conformance.kubectl_stage import Ran, Stage

RUNNING: Final = "-n NS@ wait --for=condition=Ready pod/p@ --timeout=20s"
ROLLED_OUT: Final = "-n NS@ rollout status deploy web@ --timeout=20s"
FILLED: Final = f"{RUNNING}; -n NS@ exec p@ -- sh -c echo>/tmp/f"
LINE: Final = re.compile(r"\d{6} .+\n")


def names_pods_of(pattern: str) -> Check:
    """Every name the pattern finds in what is printed is that of a pod of the cluster."""

    def check(stage: Stage, ran: Ran) -> None:
        names = re.findall(pattern, ran.output + ran.error, re.MULTILINE)
        items = stage.hub.get(stage.path("pods"))["items"]
        assert names, ran
        assert set(names) <= {each["metadata"]["name"] for each in items}, ran

    return check


def prints_lines(count: int) -> Check:
    """Standard output is so many lines of a log."""

    def check(_: Stage, ran: Ran) -> None:
        assert len(LINE.findall(ran.output)) == count, ran

    return check


def runs_debugger(name: str) -> Check:
    """The pod of the cluster has a debugging container more."""

    def check(stage: Stage, _: Ran) -> None:
        found = stage.read("pods", name)["spec"].get("ephemeralContainers") or []
        assert [each["image"] for each in found] == ["busybox"], found

    return check


def makes_debugger_on(node: str) -> Check:
    """The cluster has a pod on its node to debug it with, and nothing in its name is ours."""

    def check(stage: Stage, _: Ran) -> None:
        items = stage.hub.get(stage.path("pods"))["items"]
        found = [
            (each["spec"].get("nodeName"), each["metadata"]["name"])
            for each in items
            if each["metadata"]["name"].startswith("node-debugger-")
        ]
        assert [node for node, _ in found] == [node], items
        assert re.fullmatch(rf"node-debugger-{node}-[a-z0-9]+", found[0][1]), found

    return check


NODE: Final = "east-node-0"
DEBUGGING: Final = "--image=busybox --profile=general -- true"

LOOKING_INTO: Final = (
    works("-n NS@ logs p@ --tail=1", prints_lines(1), after=RUNNING),
    works("-n NS@ logs p@ --since=1h --timestamps", prints("T", "Z 000000 "), after=RUNNING),
    works("-n NS@ logs p@ -c c --limit-bytes=6", prints("000000"), after=RUNNING),
    works("-n NS@ logs p@ --all-containers --prefix", prints("[pod/p@/c] 000000 "), after=RUNNING),
    works(
        "-n NS@ logs deploy/web@ --tail=1",
        names_pods_of(r"using pod/(web-[a-z0-9]+-[a-z0-9]+)"),
        prints_lines(1),
        after=ROLLED_OUT,
    ),
    works(
        "-n NS@ logs deploy/web@ --all-pods --tail=1",
        names_pods_of(r"^\[pod/(web-[a-z0-9]+-[a-z0-9]+)"),
        prints_lines(2),
        after=ROLLED_OUT,
    ),
    Command(
        "-n NS@ logs p@ --previous",
        after=RUNNING,
        exit_code=1,
        sentence='previous terminated container "c" in pod "p" not found',
    ),
    fails("-n NS@ logs none@", 'pods "none@" not found'),
    works("-n NS@ exec p@ -- hostname", prints("p\n"), after=RUNNING),
    works("-n NS@ exec deploy/web@ -- hostname", names_pods_of(r"^(web-.+)$"), after=ROLLED_OUT),
    Command(
        "-n NS@ exec p@ -- cat /none",
        after=RUNNING,
        exit_code=1,
        sentence="command terminated with exit code 1",
    ),
    Command(
        "-n NS@ exec p@ -c none -- hostname",
        after=RUNNING,
        exit_code=1,
        sentence="container none is not valid for pod p",
    ),
    works("-n NS@ cp DIR/d.yaml p@:/tmp/d.yaml", after=RUNNING),
    works("-n NS@ cp p@:/tmp/f DIR/f", after=FILLED),
    works(f"-n NS@ debug p@ {DEBUGGING}", runs_debugger("p"), after=RUNNING),
    works(
        "-n NS@ debug p@ --copy-to=q@ --image=busybox --profile=general -- true",
        makes("pods", "q"),
        after=RUNNING,
    ),
    works(
        f"-n NS@ debug node/{NODE}.clusterspace.east {DEBUGGING}",
        makes_debugger_on(NODE),
    ),
)
"""Commands about one pod, or about the pods of one object."""

ACROSS: Final = (
    works(
        "-n NS logs -l app=web --prefix --tail=1",
        prints(".clusterspace.east/web] ", ".clusterspace.west/web] "),
        prints_lines(4),
        given=("web",),
        after="-n NS rollout status deploy web.clusterspace.east --timeout=20s; "
        "-n NS rollout status deploy web.clusterspace.west --timeout=20s",
    ),
)
"""Commands about pods of all clusters at once."""
