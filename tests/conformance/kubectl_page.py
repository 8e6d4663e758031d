"""Write docs/kubectl.md from the table of commands that the tests try."""

from pathlib import Path
from typing import Final

from tests.conformance.kubectl_claims import Command
from tests.conformance.kubectl_commands import CHAPTERS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "kubectl.md"

INTRODUCTION: Final = """\
# kubectl on a hub

A hub speaks the Kubernetes API, so `kubectl` needs nothing but the kubeconfig:

    kubectl --kubeconfig .clusterspace/kubeconfig get namespaces

A hub has no nodes. It keeps objects, tells who watches about every change, and leaves running them
to the clusters of the fleet: it starts no containers, makes no ReplicaSets, Pods or Endpoints, and
counts no quotas.

Every command below is run by the tests (`tests/conformance/test_kubectl.py`) against a running hub,
and its effect is read back through the API. "Works" and "fails" mean: as on a cluster, with the
same exit code. "Differs" means: not as on a cluster with nodes and controllers, and why.

This page is generated: `.venv/bin/python -m tests.conformance.kubectl_page`.
"""


def render_page() -> str:
    """Return the whole page."""
    chapters = [_chapter(title, commands) for title, commands in CHAPTERS.items()]
    return "\n".join([INTRODUCTION, *chapters])


def _chapter(title: str, commands: tuple[Command, ...]) -> str:
    rows = dict.fromkeys(_row(command) for command in commands)
    return "\n".join([f"## {title}", "", "| kubectl … | on a hub | |", "|---|---|---|", *rows, ""])


def _row(command: Command) -> str:
    text = command.text.replace("-n NS ", "").replace("NS", "demo").replace("DIR/", "")
    return f"| `{_escaped(text)}` | {_verdict(command)} | {_escaped(_remark(command))} |"


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
