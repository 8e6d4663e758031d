"""`clusterspace migrate snapshot` and `prove`: what ran before and after, compared."""

import sys
from pathlib import Path
from typing import Final

import click

from clusterspace.cli.completion import cluster_names
from clusterspace.cli.options import (
    HubOptions,
    MemberOptions,
    Networks,
    hub_options,
    member_cidrs_option,
    member_options,
)
from clusterspace.cli.output import ExitCode, Output, document_text
from clusterspace.cli.running import run

_REACH: Final = "Kubeconfig of the member; without it the hub's own way in is used."


@click.command()
@click.option(
    "-C", "--cluster", required=True, shell_complete=cluster_names, help="The member to look at."
)
@click.option("-n", "--namespaces", default="", help="Only these, separated by commas.")
@member_options(_REACH)
@member_cidrs_option
@hub_options
def snapshot(
    *,
    cluster: str,
    namespaces: str,
    member: MemberOptions,
    member_cidrs: Networks,
    hub: HubOptions,
) -> None:
    """Record what runs on a cluster, for `migrate prove` to compare with.

    Only identities are recorded: UIDs, container IDs, restart counts, hashes, addresses, volumes.
    What could not be read is recorded as not seen.

    \b
    Examples:
      clusterspace migrate snapshot -C west > before.json
      clusterspace migrate snapshot -C west -n shop,bank > before.json
    """
    from clusterspace.fleet.migration.snapshots import Selection, encode
    from clusterspace.roots.cluster_migration import Member
    from clusterspace.roots.proofs import take_snapshot

    names = tuple(sorted({each.strip() for each in namespaces.split(",") if each.strip()}))
    reach = Member(member.settings(cluster), member_cidrs)
    taken = run(lambda: take_snapshot(cluster, Selection(names), hub.settings(), reach))
    for piece in encode(taken):
        click.echo(piece, nl=False)
    for each in taken.unseen:
        where = each.namespace or "all namespaces"
        click.echo(f"not seen: {each.kind} {each.name} in {where}: {each.why}", err=True)
    seen = sum(taken.counts().values())
    click.echo(f"{seen} objects of {cluster} recorded, {taken.ended}", err=True)


@click.command()
@click.argument("migration", metavar="[MIGRATION]", default="")
@click.option("-C", "--cluster", default="", shell_complete=cluster_names, help="The member.")
@click.option(
    "--before",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="A file of `migrate snapshot`; without it, what `migrate apply` kept.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", Output.JSON.value, "html"]),
    default="text",
    show_default=True,
    help="How to show it.",
)
@member_options(_REACH)
@member_cidrs_option
@hub_options
def prove(
    *,
    migration: str,
    cluster: str,
    before: Path | None,
    output: str,
    member: MemberOptions,
    member_cidrs: Networks,
    hub: HubOptions,
) -> None:
    """Compare what runs on a cluster with what ran there before a migration.

    Whatever is not unchanged comes first, and so does what could not be seen. It ends with 1 unless
    everything was seen, and is unchanged or explained.

    \b
    Examples:
      clusterspace migrate prove west-20260102-030405
      clusterspace migrate prove west-20260102-030405 -o html > proof.html
      clusterspace migrate prove -C west --before before.json
    """
    from clusterspace.fleet.migration.proof_documents import document_of, html_of, text_of
    from clusterspace.fleet.migration.snapshots import decode
    from clusterspace.roots import proofs
    from clusterspace.roots.cluster_migration import Member

    if bool(migration) == bool(cluster) or bool(cluster) != bool(before):
        raise click.UsageError("Name a MIGRATION, or a cluster with -C and a file with --before.")
    reach = Member(member.settings(cluster or "member"), member_cidrs)
    if before is not None:
        earlier = decode(before.read_bytes())
        report = run(lambda: proofs.prove(cluster, earlier, hub.settings(), reach))
    else:
        report = run(lambda: proofs.prove_migration(migration, hub.settings(), reach))
    match output:
        case "html":
            click.echo(html_of(report), nl=False)
        case Output.JSON.value:
            click.echo(document_text(document_of(report), Output.JSON), nl=False)
        case _:
            click.echo(text_of(report), nl=False)
    if not report.is_unchanged:
        sys.exit(ExitCode.FAILED)
