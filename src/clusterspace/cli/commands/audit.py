"""`clusterspace audit`: look whether anybody has had a hand in an audit log."""

import re
from pathlib import Path
from typing import Final

import click

from clusterspace.cli.output import ExitCode, Line, Listing, Output, output_option, show

_FILE: Final = click.Path(path_type=Path)
_NOTED: Final = re.compile(r"(\d+):([0-9a-f]{64})")


@click.group()
def audit() -> None:
    """Look after the record of who did what."""


@audit.command()
def policy() -> None:
    """Print the policy of servers without --audit-policy-file: a beginning for one of your own.

    Two things of it no file can say: failed logins are audited whatever they were for, and renewed
    leases when they were refused.

    \b
    Examples:
      clusterspace audit policy > policy.yaml
    """
    import yaml

    from clusterspace.apiserver.http.audit_policy import default_document

    click.echo(yaml.safe_dump(default_document(), sort_keys=False), nl=False)


@audit.command()
@click.argument("files", nargs=-1, type=_FILE, metavar="[FILE]...")
@click.option("--data-dir", type=_FILE, help="Data directory whose audit logs are verified.")
@click.option(
    "--contains",
    metavar="NUMBER:HASH",
    help="A line that the log must have, as it was noted elsewhere; the server's log names some.",
)
@click.option(
    "--key-file", type=_FILE, help="The keys that the server was given by --audit-log-key-file."
)
@output_option()
def verify(
    *,
    files: tuple[Path, ...],
    data_dir: Path | None,
    contains: str,
    key_file: Path | None,
    output: str,
) -> None:
    """Find lines that were removed, changed, put in or moved in an audit log.

    A log is verified with the older files beside it. Ends with 1 when somebody had a hand in it.
    Lines that a full disk lost, and what a crash left of one, are told and are no tampering.
    Older files put back as a whole, head and all, are found only with --contains.

    \b
    Examples:
      clusterspace audit verify .clusterspace/hub/audit.log
      clusterspace audit verify --data-dir .clusterspace
      clusterspace audit verify --data-dir /var/lib/clusterspace/hub -o json
    """
    from clusterspace.roots.audit_logs import verify_logs

    noted = None
    if contains:
        said = _NOTED.fullmatch(contains)
        if said is None:
            raise click.BadParameter("it is NUMBER:HASH, with 64 hexadecimal digits", None, None,
                                     "--contains")  # fmt: skip
        noted = (int(said[1]), said[2])
    if bool(files) == (data_dir is not None):
        raise click.UsageError("Give either files or --data-dir.")

    verified = verify_logs(files, data_dir, noted, key_file)
    found = [each for log in verified.values() for each in log.findings]
    tampering = sum(each.is_tampering for each in found)
    document = {
        "intact": not tampering,
        "logs": [
            {
                "file": str(log),
                "lines": each.lines,
                "sequence": each.last.sequence if each.last is not None else 0,
                "hash": each.last.hash if each.last is not None else "",
                "findings": [
                    {
                        "file": str(finding.place.file),
                        "line": finding.place.line,
                        "what": finding.what,
                        "tampering": finding.is_tampering,
                        "message": finding.message,
                    }
                    for finding in each.findings
                ],
            }
            for log, each in verified.items()
        ],
    }
    rows = tuple(
        Line(str(each.place), (str(each.place), each.what, each.message),
             style="red" if each.is_tampering else "")
        for each in found
    )  # fmt: skip
    if rows or output in (Output.JSON.value, Output.YAML.value):
        show(Listing(("PLACE", "WHAT", "WHY"), rows, document), output)
    if output in (Output.TABLE.value, Output.WIDE.value):
        for log, each in verified.items():
            ends = f", the last is {each.last.sequence}:{each.last.hash}" if each.last else ""
            bad = sum(finding.is_tampering for finding in each.findings)
            judged = f"{bad} signs of tampering" if bad else "no sign of tampering"
            click.echo(f"{log}: {each.lines} lines{ends}; {judged}.")
    if tampering:
        raise SystemExit(ExitCode.FAILED)
