"""A hub on a machine of its own: `python -m tests.robustness.fault_hub --netns NAME --clock FILE`.

It takes the options of `clusterspace hub`, and before them where it lives, the file that says how
wrong its clock is, and `--plant BUG`. What is changed is changed in this process, never in the
product.
"""

import argparse
import ctypes
import mmap
import os
import struct
import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

from tests.robustness import hub_launcher, planted_stores

from clusterspace.aio import clocks
from clusterspace.apiserver import writing
from clusterspace.cli.main import main
from clusterspace.controllers.leases import Candidacy, LeaseTimings
from clusterspace.roots import hub_state, stores

LEASE = LeaseTimings(lease_seconds=3.0, renew_seconds=2.0, retry_seconds=0.5)
"""For what one hub does for all: leaders change within a run of some seconds."""

_NEW_NETWORK = 0x40000000


def enter(name: str) -> None:
    """Have the network of a namespace from here on."""
    file = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(file, _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter {name}")
    finally:
        os.close(file)


def follow_clock(path: Path) -> None:
    """Be wrong about the time of day by as much as the file says, from the moment it says so."""
    with path.open("rb") as file:
        shown = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    right = clocks.SystemClock.now

    def now() -> float:
        return right() + struct.unpack("d", shown[:8])[0]

    cast("Any", clocks.SystemClock).now = staticmethod(now)


async def check_nothing(_: object) -> None:
    """A planted bug: whoever says that he leads is believed."""


def plant(bug: str) -> None:
    if bug == "no-fence":
        writing.require_leadership = check_nothing
    elif bug in planted_stores.PLANTED:
        stores.EtcdStore = planted_stores.PLANTED[bug]
    else:
        hub_launcher.PLANTS[bug]()


def launch() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--netns", required=True)
    parser.add_argument("--clock", type=Path, required=True)
    parser.add_argument("--plant", default="")
    chosen, options = parser.parse_known_args()
    enter(chosen.netns)
    follow_clock(chosen.clock)
    cast("Any", hub_state).Candidacy = partial(Candidacy, timings=LEASE)
    if chosen.plant:
        plant(chosen.plant)
    sys.argv = ["clusterspace", "hub", *options]
    main()


if __name__ == "__main__":
    launch()
