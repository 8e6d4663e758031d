"""`clusterspace interpret`: try the scripts of ResourceInterpreterCustomizations."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterspace.cli.output import Line, Listing, Output, document_text, show
from clusterspace.cli.running import run

if TYPE_CHECKING:
    from clusterspace.kube.objects import Object

_FILE = click.Path(path_type=Path, allow_dash=True)


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    required=True,
    help="File or directory with customizations.  [repeatable]",
)
@click.option(
    "--check", "is_check", is_flag=True, help="Say whether scripts can be read; run none."
)
@click.option(
    "--operation", default="", help="What to ask of the object: interpretHealth, retain …"
)
@click.option("--observed-file", type=_FILE, help="The object as a cluster has it; - is stdin.")
@click.option("--desired-file", type=_FILE, help="The object as it should be; - is stdin.")
@click.option(
    "--status-file", type=_FILE, help="What clusters report, a document each; - is stdin."
)
@click.option("--desired-replica", type=click.IntRange(min=0), default=0, help="Replicas to set.")
def interpret(
    *,
    files: tuple[Path, ...],
    is_check: bool,
    operation: str,
    observed_file: Path | None,
    desired_file: Path | None,
    status_file: Path | None,
    desired_replica: int,
) -> None:
    """Try what the scripts of a customization say of an object; nothing is asked of a hub.

    Flags and answers are those of karmadactl interpret.

    \b
    Examples:
      clusterspace interpret -f customization.yaml --check
      clusterspace interpret -f customization.yaml --operation interpretHealth \\
          --observed-file web.yaml
      clusterspace interpret -f customization.yaml --operation reviseReplica \\
          --observed-file web.yaml --desired-replica 2
    """
    from clusterspace.errors import ClusterspaceError
    from clusterspace.fleet.interpretation.customizations import OPERATIONS
    from clusterspace.roots import interpretation
    from clusterspace.roots.interpretation import Given

    try:
        customizations = [
            each for file in files for each in interpretation.read_customizations(file)
        ]
        if is_check:
            checked = run(lambda: interpretation.check(customizations))
            lines = tuple(
                Line(
                    each.name,
                    (each.name, each.target, name, _verdict(problem)),
                    style="red" if problem else "",
                )
                for each in checked
                for name, problem in each.scripts
            )
            columns = ("NAME", "TARGET", "OPERATION", "SCRIPT")
            show(Listing(columns, lines, checked), Output.TABLE.value)
            if any(problem for each in checked for _, problem in each.scripts):
                raise click.exceptions.Exit(1)
            return
        named = {each.name.lower(): each for each in OPERATIONS}
        if operation.lower() not in named:
            known = ", ".join(each.name for each in OPERATIONS)
            wrong = f"{operation} is none" if operation else "none is given"
            raise click.UsageError(f"--operation is one of {known}; {wrong}")
        given = Given(
            _object_in(desired_file),
            _object_in(observed_file),
            _objects_in(status_file),
            desired_replica,
        )
    except (ClusterspaceError, OSError) as error:
        raise click.ClickException(str(error)) from error
    results = run(lambda: interpretation.interpret(customizations, named[operation.lower()], given))
    for number, (name, value) in enumerate(results, start=1):
        text = document_text(value, Output.YAML)
        click.echo(f"---\n# [{number}/{len(results)}] {name}:\n{text}", nl=False)


def _verdict(problem: str | None) -> str:
    if problem is None:
        return "none"
    return f"wrong: {problem}" if problem else "well"


def _objects_in(file: Path | None) -> "tuple[Object, ...]":
    from clusterspace.roots.interpretation import read_objects

    if file is None:
        return ()
    return read_objects(sys.stdin.read() if str(file) == "-" else file.read_text(), str(file))


def _object_in(file: Path | None) -> "Object | None":
    found = _objects_in(file)
    if len(found) > 1:
        raise click.UsageError(f"{file} has {len(found)} objects, and one is asked for")
    return found[0] if found else None
