"""Write docs/kubectl.md from the table of commands that the tests try."""

from pathlib import Path
from typing import Final

from tests.conformance import kubectl_fleet_commands
from tests.conformance.kubectl_claims import Command
from tests.conformance.kubectl_commands import CHAPTERS
from tests.conformance.kubectl_fleet_stage import Form

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "kubectl.md"

INTRODUCTION: Final = """\
# kubectl

On a [hub](#on-a-hub), and on the [unified view](#on-the-unified-view) of a whole fleet.

This page is generated: `.venv/bin/python -m tests.conformance.kubectl_page`.

# On a hub

A hub speaks the Kubernetes API, so `kubectl` needs nothing but the kubeconfig:

    kubectl --kubeconfig .clusterspace/kubeconfig get namespaces

A hub has no nodes. It keeps objects, tells who watches about every change, and leaves running them
to the clusters of the fleet: it starts no containers and makes no ReplicaSets, Pods or Endpoints.

Every command below is run by the tests (`tests/conformance/test_kubectl.py`) against a running hub,
and its effect is read back through the API. "Works" and "fails" mean: as on a cluster, with the
same exit code. "Differs" means: not as on a cluster with nodes and controllers, and why.
"""

OF_THE_FLEET: Final = """\
# On the unified view

`clusterspace fleet` shows the objects of every cluster at one address:

    export KUBECONFIG=.clusterspace/fleet/kubeconfig:.clusterspace/kubeconfig
    kubectl get pods -A

Objects of a member are called `NAME.clusterspace.CLUSTER`; those of the hub keep their names. A
command that is about one object says its cluster in the name, or in the namespace, which then holds
for everything it does: `-n demo.clusterspace.east`.

Every command below is run by the tests (`tests/conformance/test_kubectl_fleet.py`) against a hub,
two simulated members and the fleet API server. The same objects are in all three clusters. What the
command did is read on `east` itself: it must be what the command does on a cluster, nothing in it
may know of the fleet, and the objects of the other two may not have changed.

`kubectl create deployment` and `kubectl run` copy the name they are given into a label, and there
it stays: `app: web.clusterspace.east`. With the cluster in the namespace they have nothing to copy.

`kubectl logs deploy/web.clusterspace.east` (and `exec`, `attach`, `port-forward`, with any workload
or Service) gets the Deployment, then asks for pods by its labels alone, which say no cluster. The
fleet API server keeps such a command in `east`: it knows its requests by the `Kubectl-Session` that
kubectl gives each run, and without one by their connection. Where a proxy shares connections out
and kubectl gives no session, say the cluster in the namespace. A name without a cluster is the
hub's, and the pods of a Deployment there are wherever it was propagated to: `kubectl logs
deploy/web` takes one of them, `kubectl logs -l app=web --prefix` all.

Commands that delete what they list (`delete --all`, `delete -l`, `apply --prune`) mean the hub's
objects unless they name a cluster: [What a verb means at the fleet address](fleet-verbs.md).
"""

_FORMS: Final = ("with the cluster in the name", "with the cluster in the namespace")


def render_page() -> str:
    """Return the whole page."""
    chapters = [_chapter(title, commands) for title, commands in CHAPTERS.items()]
    of_one = kubectl_fleet_commands.CHAPTERS.items()
    twice = [_chapter_of_fleet(title, commands) for title, commands in of_one]
    of_all = _chapter("All clusters", kubectl_fleet_commands.OF_THE_FLEET, "on the fleet")
    return "\n".join([INTRODUCTION, *chapters, OF_THE_FLEET, of_all, *twice])


def _chapter(title: str, commands: tuple[Command, ...], where: str = "on a hub") -> str:
    rows = dict.fromkeys(_row(command) for command in commands)
    return "\n".join([f"## {title}", "", f"| kubectl … | {where} | |", "|---|---|---|", *rows, ""])


def _chapter_of_fleet(title: str, commands: tuple[Command, ...]) -> str:
    """Return a chapter of commands about one object, each written in both forms."""
    head = f"| kubectl … {_FORMS[0]} | {_FORMS[1]} | | |"
    rows = dict.fromkeys(map(_row_of_fleet, commands))
    return "\n".join([f"## {title} one object", "", head, "|---|---|---|---|", *rows, ""])


def _row_of_fleet(command: Command) -> str:
    named, placed = (_shown(form.say(command.text).replace("-n NS ", "")) for form in Form)
    remark = _escaped(_remark(command).replace("@", ""))
    return f"| `{named}` | `{placed}` | {_verdict(command)} | {remark} |"


def _row(command: Command) -> str:
    text = _shown(command.text.replace("-n NS ", ""))
    return f"| `{text}` | {_verdict(command)} | {_escaped(_remark(command))} |"


def _shown(text: str) -> str:
    return _escaped(text.replace("NS", "demo").replace("DIR/", ""))


def _verdict(command: Command) -> str:
    if command.differs:
        return "**differs**"
    # `kubectl diff` ends with 1 when it found something: that is no failure, and it says nothing.
    return "fails" if command.exit_code and command.sentence else "works"


def _remark(command: Command) -> str:
    said = f"“{command.sentence}”" if command.sentence else ""
    return ": ".join(part for part in (command.differs, said) if part)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render_page())
