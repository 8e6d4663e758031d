"""Random requests of people with rights in some clusters, and what they must never be shown.

Every ConfigMap holds a canary that says in which cluster and namespace it is. Whoever is shown one
that the table of rights does not give them was shown somebody else's bytes.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.component.gateway.fleet_site import TABLE, Site, grant, reaching

from clusterspace.client.requests import Answer, ApiRequest, ResourcePath
from clusterspace.fleet.gateway.fanout import exchange
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace

MEMBERS = ("east", "north", "west")
SHARED = "north"
"""The one that everybody reaches, each with rights of their own."""
CLUSTERS = ("karmada", *MEMBERS)
SPACES = ("red", "blue")
NAMES = ("one", "two")
TOKENS = {"jane": "jane-token", "carl": "carl-token"}

REACH = {"jane": ("east", "north"), "carl": ("north", "west")}
"""Which members the hub lets them reach."""

RIGHTS = {
    "jane": {"karmada": ("red",), "east": SPACES, "north": ("red",), "west": SPACES},
    "carl": {"karmada": ("blue",), "east": SPACES, "north": ("blue",), "west": SPACES},
}
"""In which namespaces each cluster lets them use ConfigMaps; in some they may not reach, too."""

CANARY = re.compile(rb"canary-(\w+)-(\w+)-")
GROUPS = "/apis/cluster.karmada.io/v1alpha1/clusters"
FORMS = (
    "/api/v1/namespaces/{ns}/configmaps{tail}",
    "/api/v1/configmaps",
    "/api/v1/namespaces/{ns}/clusterspaces/{space}/configmaps{tail}",
    "/api/v1/clusterspaces/{space}/configmaps",
    "/clusterspaces/{space}/api/v1/namespaces/{ns}/configmaps{tail}",
    "/clusterspaces/{space}/api/v1/configmaps",
    GROUPS + "/{space}/proxy/api/v1/namespaces/{ns}/configmaps{tail}",
)
ACCEPTS = (
    "application/json",
    "application/yaml",
    TABLE,
    TABLE.replace("as=Table", "as=PartialObjectMetadataList"),
    "application/vnd.kubernetes.protobuf,application/json",
)
PATCHES = ("application/merge-patch+json", "application/strategic-merge-patch+json")


def is_theirs(user: str, cluster: str, space: str) -> bool:
    """Say whether somebody may see the ConfigMaps of a namespace in a cluster."""
    may_reach = cluster == "karmada" or cluster in REACH[user]
    return may_reach and space in RIGHTS[user][cluster]


def foreign_in(user: str, said: bytes) -> set[str]:
    """Return the canaries in an answer that are none of this user's business."""
    found = {(cluster.decode(), space.decode()) for cluster, space in CANARY.findall(said)}
    return {f"{each[0]}/{each[1]}" for each in found if not is_theirs(user, *each)}


async def furnish(site: Site) -> None:
    """Put canaries everywhere, and give everybody their rights."""
    for cluster in CLUSTERS:
        side = site.members.get(cluster, site.hub)
        for space in SPACES:
            await side.client.create(ResourcePath(NAMESPACES), namespace(space))
            for name in NAMES:
                text = f"canary-{cluster}-{space}-{name}"
                made = config_map(
                    name,
                    {"k": text},
                    namespace=space,
                    annotations={"note": text},
                    labels={"l": "v"},
                )
                await side.client.create(ResourcePath(CONFIG_MAPS, space), made)
        for user in TOKENS:
            for space in RIGHTS[user][cluster]:
                await _grant_in(site, cluster, user, space)
    for user, members in REACH.items():
        await grant(site.hub, user, reaching(*members), f"{user}-reaches")


async def _grant_in(site: Site, cluster: str, user: str, space: str) -> None:
    side = site.members.get(cluster, site.hub)
    rbac = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]
    role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": user}, "rules": rules}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": user},
        "subjects": [{"kind": "User", "name": user, "apiGroup": rbac}],
    }
    for resource, made in (("roles", role), ("rolebindings", binding)):
        place = ResourcePath(GroupVersionResource(rbac, "v1", resource), space)
        await side.client.create(place, made)


@dataclass(frozen=True)
class Loot:
    """Tokens and versions that the administrator was given, in somebody else's hands."""

    continues: tuple[str, ...]
    versions: tuple[str, ...]


async def steal(site: Site) -> Loot:
    """List as the administrator, and keep what the answers carry."""
    continues: list[str] = []
    versions: list[str] = []
    for limit in (1, 2, 3, 5):
        token = ""
        for _ in range(4):
            path = f"/api/v1/configmaps?limit={limit}&labelSelector=l&continue={token}"
            answer = await site.ask("GET", path)
            assert answer.code == 200, answer
            token = answer.body["metadata"].get("continue", "")
            versions.append(answer.body["metadata"]["resourceVersion"])
            continues += [token] if token else []
    return Loot(tuple(continues), tuple(dict.fromkeys(versions)))


@dataclass(frozen=True)
class Attempt:
    """One request somebody makes."""

    user: str
    ask: ApiRequest

    def __str__(self) -> str:
        return f"{self.user}: {self.ask.method} {self.ask.target} {dict(self.ask.headers)}"


def attempts(random: Random, loot: Loot) -> Iterator[Attempt]:
    """Yield requests without end, the same ones for the same seed."""
    while True:
        user = random.choice(tuple(TOKENS))
        yield Attempt(user, _request(random, loot))


def _request(random: Random, loot: Loot) -> ApiRequest:
    method = random.choices(("GET", "PATCH", "PUT", "DELETE", "POST"), (75, 10, 5, 5, 5))[0]
    path = _path(random)
    query = dict(_parameters(random, loot))
    body: Any = None
    content_type = "application/json"
    if method != "GET":
        query["dryRun"] = "All"
        body = config_map(_name(random), {"k": "mine"}, namespace=random.choice(SPACES))
    if method == "PATCH":
        body, content_type = {"data": {"mine": "x"}}, random.choice(PATCHES)
    headers = [("Accept", random.choice(ACCEPTS)), ("Content-Type", content_type)]
    if random.random() < 0.1:
        headers.append(("Impersonate-User", random.choice(("root", *TOKENS))))
    if random.random() < 0.1:
        headers.append(("X-Remote-User", "root"))
    pairs = tuple((key, value) for key, value in query.items())
    raw = json.dumps(body).encode() if body is not None else None
    return ApiRequest(method, path, pairs, tuple(headers), raw, seconds=20)


def _path(random: Random) -> str:
    space = random.choice((*CLUSTERS, "all", "hub"))
    scope = random.choice(SPACES)
    if random.random() < 0.25:
        scope = f"{scope}.clusterspace.{random.choice(CLUSTERS)}"
    tail = f"/{_name(random)}" if random.random() < 0.5 else ""
    return random.choice(FORMS).format(ns=scope, space=space, tail=tail)


def _name(random: Random) -> str:
    name = random.choice(NAMES)
    return f"{name}.clusterspace.{random.choice(CLUSTERS)}" if random.random() < 0.6 else name


def _parameters(random: Random, loot: Loot) -> Iterator[tuple[str, str]]:
    if random.random() < 0.2:
        yield "limit", str(random.choice((1, 2, 5)))
    if random.random() < 0.1:
        yield "continue", random.choice(loot.continues)
    if random.random() < 0.15:
        yield "resourceVersion", random.choice((*loot.versions, "0"))
    if random.random() < 0.15:
        yield "fieldSelector", f"metadata.name={_name(random)}"
    if random.random() < 0.1:
        yield "labelSelector", "l=v"
    if random.random() < 0.05:
        yield from (("watch", "true"), ("timeoutSeconds", "1"))


async def answer_to(site: Site, attempt: Attempt) -> Answer:
    return await exchange(site.connection(TOKENS[attempt.user]), attempt.ask)


def shown_by(answer: Answer) -> bytes:
    """Return every byte of an answer: its body, unpacked, and its headers."""
    return answer.body + json.dumps(dict(answer.headers)).encode()
