"""`--allow-member-cidrs`: which addresses members may have besides those they may have anyway."""

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, TypeAlias

import click

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


class _Cidr(click.ParamType[IPv4Network | IPv6Network]):
    """A range of addresses, such as 127.0.0.0/8."""

    name = "CIDR"

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> IPv4Network | IPv6Network:
        """Return the range; click's own error names the flag and what is wrong."""
        if isinstance(value, IPv4Network | IPv6Network):
            return value
        try:
            return ip_network(str(value))
        except ValueError as error:
            self.fail(f"{error}; a range is written like 127.0.0.0/8 or fd00::/8", param, ctx)


member_cidrs_option: Final = click.option(
    "--allow-member-cidrs",
    "member_cidrs",
    type=_Cidr(),
    multiple=True,
    metavar="CIDR",
    help="Range that members may be reached in although it is loopback, link-local, a metadata "
    "service's or the hub's own; may be given several times.",
)
