"""What the kit gives programs to listen on."""

import socket
from pathlib import Path

import pytest

from clusterspace.testing.hubs import free_port

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_free_port_is_nobody_elses_before_the_program_listens_on_it() -> None:
    if not RANGE.exists():
        pytest.skip(f"no {RANGE}")
    lowest, highest = map(int, RANGE.read_text().split())
    ports = [free_port() for _ in range(100)]

    assert len(set(ports)) == len(ports)
    assert not [port for port in ports if lowest <= port <= highest]
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
