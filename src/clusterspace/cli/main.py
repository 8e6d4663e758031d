"""The command table: `clusterspace VERB`."""

from importlib import import_module
from typing import Final

import click

from clusterspace import __version__

COMMANDS: Final = {
    "hub": ("clusterspace.cli.serve:hub", "Run the hub: a Kubernetes API server for the fleet."),
    "controllers": (
        "clusterspace.cli.controllers:controllers",
        "Run the controllers that look after the fleet.",
    ),
    "join": ("clusterspace.cli.join:join", "Let a cluster join the fleet."),
    "unjoin": ("clusterspace.cli.join:unjoin", "Let a cluster leave the fleet."),
    "token": ("clusterspace.cli.tokens:token", "Let clusters register themselves."),
    "register": ("clusterspace.cli.register:register", "Register a cluster whose agent dials in."),
    "unregister": (
        "clusterspace.cli.register:unregister",
        "Take a registered cluster and its agent out of the fleet.",
    ),
    "agent": ("clusterspace.cli.agent:agent", "Run the agent of a registered cluster."),
    "clusters": ("clusterspace.cli.clusters:clusters", "Show the clusters of the fleet."),
    "cordon": ("clusterspace.cli.clusters:cordon", "Place nothing new on a cluster."),
    "uncordon": ("clusterspace.cli.clusters:uncordon", "Place new things on a cluster again."),
    "taint": ("clusterspace.cli.clusters:taint", "Set or remove taints of a cluster."),
    "sim": (
        "clusterspace.cli.sim:sim",
        "Run a simulated member cluster: a real API, made-up pods.",
    ),
    "store": ("clusterspace.cli.store:store", "Back up, restore and check the hub's data."),
}
"""Verb to (module:command, one sentence). Modules are imported when their verb is used."""


class CommandTable(click.Group):
    """A group that imports a verb's module only when the verb is used, so `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one verb."""
        if cmd_name not in COMMANDS:
            return None
        module_name, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module_name), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs with their sentences, importing none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, sentence) for verb, (_, sentence) in COMMANDS.items()])


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="clusterspace")
def main() -> None:
    """Use a fleet of Kubernetes clusters as one."""
