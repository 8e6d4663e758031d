"""The command table: `clusterspace VERB`."""

import difflib
import errno
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from clusterspace import __version__
from clusterspace.cli.running import sentence_of
from clusterspace.cli.settings import CONFIG_VARIABLE, name_variables, read_config
from clusterspace.errors import ClusterspaceError


@dataclass(frozen=True, slots=True)
class Verb:
    """One line of the table; its module is imported when the verb is used."""

    path: str
    """module:command, below clusterspace.cli.commands."""
    sentence: str

    def load(self) -> click.Command:
        """Import the module and return the command."""
        module_name, _, attribute = self.path.partition(":")
        module = import_module(f"clusterspace.cli.commands.{module_name}")
        command: click.Command = getattr(module, attribute)
        return command


SECTIONS: Final = {
    "Run a fleet": {
        "up": Verb("local:up", "Run a whole fleet on this machine."),
        "down": Verb("local:down", "Stop the fleet on this machine; its data stays."),
        "hub": Verb("servers:hub", "Run the hub: a Kubernetes API server for the fleet."),
        "fleet": Verb("servers:fleet", "Run the fleet API server: every cluster, one address."),
        "controllers": Verb("controllers:controllers", "Run the controllers."),
        "agent": Verb("controllers:agent", "Run the agent of a registered cluster."),
        "watchdog": Verb("controllers:watchdog", "Run the watchdog of a Push cluster."),
        "init": Verb("init:init", "Make any kube-apiserver the hub, or take that back."),
        "webhook": Verb("init:webhook", "Run the hub's rules for a kube-apiserver."),
        "sim": Verb("servers:sim", "Run a simulated member: a real API, made-up pods."),
    },
    "Clusters": {
        "join": Verb("membership:join", "Make a cluster a member that the hub reaches."),
        "unjoin": Verb("membership:unjoin", "Take a member out of the fleet."),
        "token": Verb("tokens:token", "Let clusters register themselves."),
        "register": Verb("membership:register", "Register a cluster whose agent dials the hub."),
        "unregister": Verb("membership:unregister", "Take a registered cluster out again."),
        "cordon": Verb("clusters:cordon", "Place nothing new on a cluster."),
        "uncordon": Verb("clusters:uncordon", "Let a cluster get new work again."),
        "taint": Verb("clusters:taint", "Set or remove taints of a cluster."),
        "drain": Verb("moves:drain", "Move what may run elsewhere off a cluster."),
    },
    "Workloads": {
        "migrate": Verb("migrate:migrate", "Take a whole live cluster in, or give it back."),
        "promote": Verb("workloads:promote", "Take over what already runs on a cluster."),
        "rebalance": Verb("moves:rebalance", "Place workloads anew, and show it first."),
        "simulate": Verb("moves:simulate", "Say what a failure or a policy would do."),
        "resume": Verb("workloads:resume", "Let paused deletions on a cluster go on."),
        "why": Verb("why:why", "Say why an object is where it is."),
        "diff": Verb("diff:diff", "Say in which clusters an object differs."),
        "interpret": Verb("interpret:interpret", "Try what scripts say of kinds of your own."),
        "search": Verb("search:search", "Ask the whole fleet in SQL, with your rights."),
    },
    "Look": {
        "clusters": Verb("clusters:clusters", "Show the clusters: who is well, who has room."),
        "ui": Verb("ui:ui", "Open the page: what is broken, where, and why."),
        "top": Verb("top:top", "The page's first screen in a terminal, as it changes."),
        "status": Verb("health:status", "Show how the parts of a fleet are."),
        "logs": Verb("local:logs", "Show the log of one part."),
        "doctor": Verb("health:doctor", "Look for what is wrong, and say what to do."),
        "kubeconfig": Verb("clusters:kubeconfig", "Write contexts for the fleet and each cluster."),
    },
    "Data and settings": {
        "store": Verb("store:store", "Back up, restore and check the hub's data."),
        "certs": Verb("certs:certs", "Rotate keys and authorities, revoke credentials."),
        "audit": Verb("audit:audit", "Find out whether an audit log was tampered with."),
        "config": Verb("config:config", "Show every setting, and where it came from."),
        "version": Verb("config:version", "Say which version this is, and which the hub has."),
        "completion": Verb("config:completion", "Teach your shell to complete our commands."),
    },
}
"""The verbs by what people come for, in the order they are shown."""

_VERBS: Final = {verb: line for section in SECTIONS.values() for verb, line in section.items()}


class CommandTable(click.Group):
    """A group that imports a verb's module only when the verb is used, so `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the table."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one verb, its settings named."""
        verb = _VERBS.get(cmd_name)
        if verb is None:
            return None
        command = verb.load()
        name_variables((cmd_name,), command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; for one that does not exist, say which was probably meant."""
        close = difflib.get_close_matches(args[0], _VERBS, n=1)
        if args[0] not in _VERBS and close and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; what we raise on purpose is told in a sentence, without a trace."""
        try:
            return super().invoke(ctx)
        except (ClusterspaceError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # nobody reads our output any more, and nobody would read the sentence
            raise click.ClickException(sentence_of(error)) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the verbs with their sentences, importing none of them."""
        options = click.Command.shell_complete(self, ctx, incomplete)
        verbs = (each for each in _VERBS.items() if each[0].startswith(incomplete))
        return [*(CompletionItem(verb, help=line.sentence) for verb, line in verbs), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs with their sentences, importing none of them."""
        width = max(map(len, _VERBS))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                rows = [(verb.ljust(width), line.sentence) for verb, line in verbs.items()]
                formatter.write_dl(rows)


def _use_config(
    context: click.Context, parameter: click.Parameter, file: Path | None
) -> Path | None:
    """Give the commands the values of the config file, where nothing better is said."""
    if file is not None and isinstance(context.command, click.Group):
        context.default_map = read_config(file, context.command)
    return file


@click.group(cls=CommandTable, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar=CONFIG_VARIABLE,
    callback=_use_config,
    help="File with settings, by verb and option.",
)
@click.version_option(__version__, prog_name="clusterspace")
def main(config_file: Path | None) -> None:
    """Use a fleet of Kubernetes clusters as one.

    \b
    Examples:
      clusterspace up --demo            a fleet on this machine, with something in it
      clusterspace join west --cluster-kubeconfig west.yaml
      clusterspace clusters             who is in the fleet
      clusterspace VERB --help          all about one command

    Every option is also a variable (CLUSTERSPACE_HUB_PORT for `hub --port`) and a key of the
    file that --config or CLUSTERSPACE_CONFIG names (hub: {port: 6443}); `clusterspace config
    show` says what counts. Commands end with 0 when it was done, 1 when it was not, 2 when they
    were called wrongly.
    """
    if config_file is not None:
        # What we start, such as the parts of `up`, has the same settings.
        os.environ[CONFIG_VARIABLE] = str(config_file.absolute())


def plugin() -> None:
    """Be `kubectl clusterspace`."""
    main(prog_name="kubectl clusterspace")
