"""Ten thousand large, deep and odd bodies by an ordinary user, and nobody else notices."""

import http.client
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Lock

import pytest
from tests.attacks.crowded_hub import TENANT, TENANT_TOKEN, CrowdedHub, crowded_hub, longest_stall
from tests.attacks.large_bodies import draw, targets

REQUESTS = int(os.environ.get("STALL_FUZZ_REQUESTS", "10000"))
FIRST_SEED = int(os.environ.get("STALL_FUZZ_SEED", "1"))
AT_ONCE = 4
WORST_SECONDS = 0.25
MEMORY_RATIO = 1.2
SETTLE_SECONDS = 90.0
WARM_UP = 300
"""Requests before memory is looked at: caches, code and schemas that every hub has after a day."""


class Attackers:
    """Several connections that send what the seeds say, one after the other."""

    def __init__(self, hub: CrowdedHub) -> None:
        self._hub = hub
        self._lock = Lock()
        self.answers: Counter[int] = Counter()
        self.failures: list[str] = []
        self.slowest: list[tuple[float, int, str]] = []

    def send_all(self, seeds: Iterator[int], until: int) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda _: self._send(seeds, until), range(AT_ONCE)))

    def _send(self, seeds: Iterator[int], until: int) -> None:
        connection: http.client.HTTPSConnection | None = None
        while True:
            with self._lock:
                seed = next(seeds)
            if seed >= until:
                if connection is not None:
                    connection.close()
                return
            sent = draw(seed, TENANT)
            headers = {
                "Authorization": f"Bearer {TENANT_TOKEN}",
                "Content-Type": sent.content_type,
            }
            connection = connection or self._hub.hub.connections.open()
            began = time.perf_counter()
            try:
                connection.request(sent.method, sent.path, sent.body, headers)
                response = connection.getresponse()
                code, body = response.status, response.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                connection, code, body = None, 0, b""
            took = time.perf_counter() - began
            with self._lock:
                self.answers[code] += 1
                self.slowest = sorted([*self.slowest, (took, seed, sent.what)])[-5:]
                if code >= 500 and b"InternalError" in body and b"no free node port" not in body:
                    self.failures.append(f"seed {seed} ({sent.what}): {code} {body[:300]!r}")


def settled_memory(hub: CrowdedHub, enough: float) -> int:
    """Return the memory once it is at most `enough`, or after a while."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while (held := hub.resident_bytes()) > enough and time.monotonic() < deadline:
        time.sleep(1)
    return held


@pytest.mark.slow
def test_ten_thousand_large_bodies_delay_nobody_and_leave_no_memory_behind(tmp_path: Path) -> None:
    attacked, idle = tmp_path / "attacked", tmp_path / "idle"
    attacked.mkdir()
    idle.mkdir()
    print(f"seeds {FIRST_SEED} to {FIRST_SEED + REQUESTS}")
    with crowded_hub(attacked, store="sqlite") as hub, crowded_hub(idle) as control:
        for path, wanted in targets(TENANT):
            hub.hub.create(path, wanted)
        attackers, seeds = Attackers(hub), count(FIRST_SEED)
        attackers.send_all(seeds, FIRST_SEED + min(WARM_UP, REQUESTS // 2))
        memory, stalls, began = hub.resident_bytes(), hub.stalls(), time.monotonic()

        # What a machine that others use delays by itself is seen on a hub that nobody attacks.
        with hub.bystander() as waits, control.bystander() as undisturbed:
            attackers.send_all(seeds, FIRST_SEED + REQUESTS)

        after = settled_memory(hub, memory * MEMORY_RATIO)
        print(f"{sum(attackers.answers.values())} answers in {time.monotonic() - began:.0f} s")
        print(f"by code: {dict(sorted(attackers.answers.items()))}")
        print(f"slowest: {attackers.slowest}")
        print(f"bystander {waits}, undisturbed {undisturbed}")
        print(f"stalls by bound: {hub.stalls()}; longest {longest_stall(stalls, hub.stalls())}")
        print(f"memory {memory / 2**20:.0f} MiB, afterwards {after / 2**20:.0f} MiB")
        assert attackers.failures == []
        assert hub.hub.errors() == []
        assert longest_stall(stalls, hub.stalls()) <= WORST_SECONDS
        assert waits.worst - undisturbed.worst < WORST_SECONDS
        assert after <= memory * MEMORY_RATIO
