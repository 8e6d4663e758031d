"""What `join` and `register` ask about a new member alike: its administrator, and where it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from clusterspace.cli.hub_option import Command

if TYPE_CHECKING:
    from clusterspace.fleet.membership.manifests import Location

_OPTIONS: Final = (
    click.option(
        "--cluster-kubeconfig",
        type=click.Path(dir_okay=False, path_type=Path),
        required=True,
        help="Kubeconfig of an administrator of the cluster.",
    ),
    click.option("--cluster-context", default="", help="Context in that kubeconfig."),
    click.option("--cluster-provider", default="", help="Who runs the cluster, for placement."),
    click.option("--cluster-region", default="", help="Region of the cluster, for placement."),
    click.option("--cluster-zones", default="", help="Zones of the cluster, separated by commas."),
)


def joining_options(command: Command) -> Command:
    """Give a command the options that say which cluster joins, and where it is."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def location_in(provider: str, region: str, zones: str) -> "Location":
    """Return where a cluster is, as its options say it."""
    from clusterspace.fleet.membership.manifests import Location

    return Location(
        provider, region, tuple(each.strip() for each in zones.split(",") if each.strip())
    )
