"""Somebody who only reads, and how long they wait: `python -m tests.attacks.bystander`.

A process of its own: whoever prepares attacks would delay it, and the figures would be theirs.
It asks for one small object after the other on one connection until its input ends, and often
enough for figures: on a busy machine an attack is over before. Then it prints how often it asked,
the longest it waited, and when.
"""

import http.client
import json
import select
import ssl
import sys
import time
from urllib.parse import urlsplit

PATIENCE = 120.0
PAUSE = 0.005
LEAST = 20


def ask_until_told(url: str, authority: str, token: str) -> dict[str, float]:
    """Ask until the input ends; return the figures."""
    place = urlsplit(url)
    trust = ssl.create_default_context(cafile=authority)
    connection = http.client.HTTPSConnection(
        str(place.hostname), place.port, timeout=PATIENCE, context=trust
    )
    headers = {"Authorization": f"Bearer {token}"}
    waits: list[float] = []
    while not select.select([sys.stdin], [], [], PAUSE)[0] or len(waits) < LEAST:
        began = time.perf_counter()
        connection.request("GET", "/api/v1/namespaces/default", None, headers)
        answer = connection.getresponse()
        answer.read()
        waits.append(time.perf_counter() - began)
        assert answer.status == 200, answer.status
    waits.sort()
    return {
        "asked": len(waits),
        "worst": waits[-1],
        "median": waits[len(waits) // 2],
        "p99": waits[max(0, len(waits) - len(waits) // 100 - 1)],
    }


if __name__ == "__main__":
    print(json.dumps(ask_until_told(*sys.argv[1:4])))
