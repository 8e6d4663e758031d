"""Cases for the oracle: who asks what of the hub, and what of the gateway."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from tests.attacks.oracle_site import Case
from tests.attacks.oracle_world import MEMBERS, METHODS, UPGRADE, USERS, Requests, proxied

SOMEBODY = tuple(USERS)
WEIGHTS = tuple(
    {"": 2, "root": 2, "tenant": 20, "looker": 8, "viewer": 8}.get(user, 5) for user in SOMEBODY
)
FLEET_WEIGHTS = tuple(
    {"tenant": 30, "looker": 20, "reacher": 14, "viewer": 10}.get(user, 3) for user in SOMEBODY
)
"""Most of the gateway's callers reach some cluster."""
LIKELY = {
    "reacher": ("configmaps", "pods", "services"),
    "rolemaker": ("roles", "rolebindings"),
    "binder": ("rolebindings",),
    "agent-west": ("leases", "secrets", "configmaps"),
    "partial": ("deployments", "pods"),
    "lister": ("configmaps", "secrets"),
    "deleter": ("configmaps", "secrets"),
    "patcher": ("configmaps", "deployments"),
    "namer": ("configmaps", "secrets", "nodes", "namespaces"),
}
"""What somebody is likely to ask for: what they have some rights to, and want more of."""

HOMES = {"neighbour": "tenant-s", "agent-west": "karmada-cluster"}
"""Where somebody has rights, if they have any; all others in tenant-r."""


def hub_cases(random: Random) -> Iterator[Case]:
    """Yield requests to the hub without end."""
    requests = Requests(random)
    while True:
        yield one_case(requests, through_proxy=0.04)


def one_case(
    requests: Requests, *, through_proxy: float = 0.0, weights: tuple[int, ...] = WEIGHTS
) -> Case:
    random = requests.random
    user = random.choices(SOMEBODY, weights)[0]
    if random.random() < 0.01:
        return Case(user, random.choice(METHODS), requests.other_path())
    likely = LIKELY.get(user)
    resource = random.choice(likely) if likely and random.random() < 0.7 else None
    path, resource, space, name = requests.path(resource, HOMES.get(user, "tenant-r"))
    method = random.choices(METHODS, (30, 18, 14, 18, 18, 2))[0]
    body, content_type = requests.body(method, resource, space, name)
    headers = [*requests.headers(), *([("content-type", content_type)] if content_type else [])]
    query = requests.query()
    if content_type == "application/apply-patch+yaml" and "fieldManager" not in query:
        query = "?fieldManager=f"
    if random.random() < 0.01:
        method, headers = "GET", [*headers, *UPGRADE]
    if random.random() < through_proxy:
        path = proxied(random.choice(("east", "west", "missing", "*")), path)
    return Case(user, method, path + query, body, tuple(headers))


def gateway_cases(random: Random) -> Iterator[Case]:
    """Yield requests to the gateway without end: the same ones, with clusters in them."""
    requests = Requests(random)
    while True:
        case = one_case(requests, weights=FLEET_WEIGHTS)
        path, mark, query = case.target.partition("?")
        path, body = requests.placed(path, case.body)
        if query.startswith("fieldSelector=metadata.name%3Done") and random.random() < 0.3:
            query = query.replace("%3Done", f"%3Done.clusterspace.{random.choice(MEMBERS)}", 1)
        yield replace(case, target=path + mark + query, body=body)
