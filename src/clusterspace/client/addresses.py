"""A host to the addresses that are connected to: looked up once, judged, and used as judged.

A name whose owner changes its answer between a check and the connection would lead a checked
request anywhere. So nothing here is looked up twice: what is judged is the socket address itself,
in the moment before it is connected to. A name that leads to one refused address is refused as a
whole, for whoever answers so is up to something.

Settings that a kubeconfig made carry no rules: they are the operator's own word.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, cast

from aiohttp.abc import AbstractResolver, ResolveResult

from clusterspace.client.endpoints import Address, AddressRules, advice, read_address

SocketAddress: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]
"""Family, type, protocol, canonical name and address, as the operating system tells them."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[SocketAddress]]]
"""Looks a host up; OSError when nobody knows it."""

_ANY_PORT: Final = 9
"""Nothing is sent there."""


class RefusedAddress(OSError):
    """An address that members may not have; an OSError so that HTTP libraries let it through."""

    def __init__(self, address: str, what: str) -> None:
        super().__init__(f"{address}: {advice(what)}")
        self.address = address
        self.advice = advice(what)


async def look_up(host: str, port: int) -> Sequence[SocketAddress]:
    """Ask the system for the addresses of a host."""
    # Addresses of a family that this machine has no network for are left out.
    flags = socket.AI_ADDRCONFIG if read_address(host) is None else 0
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)


def refuse(rules: AddressRules | None, address: str) -> None:
    """Raise RefusedAddress unless the rules allow a connection to this address."""
    if rules is None:
        return
    is_readable = read_address(address.partition("%")[0]) is not None
    what = problem_with_host(rules, address) if is_readable else "no internet address"
    if what:
        raise RefusedAddress(address, what)


def problem_with_host(rules: AddressRules, host: str) -> str:
    """Return what the address a host is written as may not be; empty when fine, or a name."""
    address = read_address(host.partition("%")[0])
    if address is None or rules.allows(address):
        return ""
    found = rules.problem_with(address)
    if not found and is_of_this_machine(address):
        return "an address of the machine that would connect to it"
    return found


def is_of_this_machine(address: Address) -> bool:
    """Whether an address leads back to this machine.

    The system is asked which of its own addresses it would call from: for one of its own it is the
    very same. Connecting a datagram socket sends nothing.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), _ANY_PORT))
            return read_address(probe.getsockname()[0].partition("%")[0]) == address
        except OSError:
            return False  # no way leads there at all


class JudgingResolver(AbstractResolver):
    """Looks names up for a pool of connections, and refuses those that lead astray."""

    def __init__(self, rules: AddressRules | None, resolve: Resolve) -> None:
        self._rules = rules
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host, if all of them may be connected to."""
        found = await judged(self._rules, self._resolve, host, port)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=each_family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for each_family, _, protocol, _, address in found
            if family in (socket.AF_UNSPEC, each_family)
        ]

    async def close(self) -> None:
        """Keep nothing, so there is nothing to close."""


async def judged(
    rules: AddressRules | None, resolve: Resolve, host: str, port: int
) -> Sequence[SocketAddress]:
    """Look a host up once; RefusedAddress when any address it leads to is refused."""
    found = await resolve(host, port)
    for _, _, _, _, address in found:
        refuse(rules, str(address[0]))
    return found


async def dial(
    rules: AddressRules | None, resolve: Resolve, host: str, port: int, seconds: float
) -> socket.socket:
    """Connect to a host, trying its addresses in turn; OSError of the last when none answers."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await judged(rules, resolve, host, port):
        connected = socket.socket(family, kind, protocol)
        connected.setblocking(False)
        try:
            async with asyncio.timeout(seconds):
                await loop.sock_connect(connected, cast("Any", address))
        except TimeoutError:
            connected.close()
            failure = OSError(errno.ETIMEDOUT, "no connection in time")
        except OSError as error:
            connected.close()
            failure = error
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise failure
