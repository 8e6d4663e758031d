"""Who there is in the world of the oracle, what they were given, and the requests they make."""

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any
from urllib.parse import quote

from tests.attacks.oracle import CLUSTERS, HUB, RBAC, Who
from tests.attacks.oracle_site import Server, World, place_of

MEMBERS = ("east", "west")
SPACES = ("tenant-r", "tenant-s", "victim")
NAMES = ("one", "two", "tenant-r", "victim", "status", "watch", "east", "west", "missing")
AUTHENTICATED = "system:authenticated"

USERS = {
    "": Who("system:anonymous", ("system:unauthenticated",)),
    "root": Who("root", ("system:masters", AUTHENTICATED)),
    "agent-west": Who(
        "system:karmada:agent:west", ("system:karmada:agents", AUTHENTICATED)
    ),
    **{
        name: Who(name, (f"{name}s", AUTHENTICATED))
        for name in (
            "tenant", "neighbour", "viewer", "namer", "impersonator", "rolemaker", "binder",
            "partial", "reacher", "looker", "lister", "deleter", "patcher",
        )
    },
}  # fmt: skip
"""By the names their tokens begin with."""

TOKENS = "".join(
    f'{token}-token,{who.name},,"{",".join(who.groups[:-1])}"\n'
    for token, who in USERS.items()
    if token
)


def rule(verbs: str, groups: str, resources: str, *names: str) -> dict[str, Any]:
    found = {
        "verbs": verbs.split(),
        "apiGroups": ["" if each == "core" else each for each in groups.split()],
        "resources": resources.split(),
    }
    return {**found, "resourceNames": [*names]} if names else found


EVERYTHING = rule("*", "*", "*")
PROXY = f"{CLUSTERS}"
WRITES = "create update patch delete"

EVERYWHERE: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "namer": [
        rule("get delete", "core", "namespaces", "tenant-r"),
        rule("get patch", "core", "nodes", "one"),
    ],
    "impersonator": [
        rule("impersonate", "core", "users", "viewer"),
        rule("impersonate", "core", "groups", "viewers"),
    ],
    "binder": [rule("bind", RBAC, "clusterroles", "view")],
    "partial": [
        rule("get update patch", "apps", "deployments/status"),
        rule("get", "core", "pods/log namespaces/status"),
        rule("create", "core", "pods/eviction"),
    ],
    "lister": [rule("list watch", "core", "configmaps secrets")],
    "deleter": [rule("delete", "core apps", "configmaps secrets deployments")],
    "patcher": [rule("patch update get", "core apps", "configmaps secrets deployments")],
    "system:karmada:agents": [rule("*", "core", "secrets configmaps")],
}
"""What they may do in every namespace of every cluster; agents are given what they must not use."""

ON_HUB: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "tenant": [rule("*", PROXY, "clusters/proxy", "east")],
    "reacher": [rule("*", PROXY, "clusters/proxy", "west")],
    "looker": [rule("get", PROXY, "clusters/proxy")],
    "viewer": [rule("get create", PROXY, "clusters/proxy", "east")],
    "patcher": [rule("patch", PROXY, "clusters/proxy")],
}
ON_MEMBERS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "looker": [EVERYTHING],
    "reacher": [
        rule("get list create delete", "core", "configmaps pods pods/proxy services/proxy")
    ],
}

IN_NAMESPACES: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]] = {
    ("tenant-r", "tenant"): [EVERYTHING],
    ("tenant-r", "namer"): [
        rule("get list watch update patch delete", "core", "configmaps secrets", "one"),
        rule("get update", RBAC, "roles", "one"),
    ],
    ("tenant-r", "rolemaker"): [
        rule("*", RBAC, "roles rolebindings"),
        rule("get list", "core", "configmaps"),
    ],
    ("tenant-r", "binder"): [rule(f"get {WRITES}", RBAC, "rolebindings")],
}


def _bound(who: str, namespace: str, role: str, kind: str) -> dict[str, Any]:
    subject = "Group" if who.startswith("system:") else "User"
    name = f"of-{who}".replace("system:", "").replace(":", "-") + f"-{role}"[:20]
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": subject, "apiGroup": RBAC, "name": who}],
    }


async def furnish(server: Server) -> None:
    """Put objects with canaries into a server, and give everybody their rights."""
    for space in (*SPACES, "status", "watch"):
        await server.make("/api/v1/namespaces", thing("namespaces", "", space))
    for space in SPACES:
        for resource in NAMESPACED:
            if resource == "status.odd.example":
                continue  # no path leads there: `namespaces/NS/status` is a Namespace's
            for name in ("one", "two"):
                await server.make(collection(resource, space), thing(resource, space, name))
    for resource in CLUSTER_WIDE:
        for name in ("one", "tenant-r", "victim"):
            if resource != "namespaces":
                await server.make(collection(resource, ""), thing(resource, "", name))
    await _grant(server)
    if server.name == HUB:
        await _mark_credentials(server)


async def _grant(server: Server) -> None:
    rbac = f"/apis/{RBAC}/v1"
    wide = [*EVERYWHERE.items(), *(ON_HUB if server.name == HUB else ON_MEMBERS).items()]
    for number, (who, rules) in enumerate(wide):
        role = f"given-{number}"
        made = {"metadata": {"name": role}, "rules": rules}
        await server.make(f"{rbac}/clusterroles", made, is_marked=False)
        binding = _bound(who, "", role, "ClusterRole")
        await server.make(f"{rbac}/clusterrolebindings", binding, is_marked=False)
    binding = _bound("viewer", "", "view", "ClusterRole")
    await server.make(f"{rbac}/clusterrolebindings", binding, is_marked=False)
    inside = f"{rbac}/namespaces/{{}}"
    binding = _bound("neighbour", "tenant-s", "edit", "ClusterRole")
    await server.make(f"{inside.format('tenant-s')}/rolebindings", binding, is_marked=False)
    for (space, who), rules in IN_NAMESPACES.items():
        made = {"metadata": {"name": f"given-{who}", "namespace": space}, "rules": rules}
        await server.make(f"{inside.format(space)}/roles", made, is_marked=False)
        binding = _bound(who, space, f"given-{who}", "Role")
        await server.make(f"{inside.format(space)}/rolebindings", binding, is_marked=False)


async def _mark_credentials(server: Server) -> None:
    """Know the hub's own Secrets by their UIDs; their tokens are the members' too."""
    page = await server.store.range("/registry/core/secrets/karmada-cluster/")
    for entry in page.items:
        uid = json.loads(entry.value)["metadata"]["uid"]
        server.credentials[uid.encode()] = place_of(entry.key)


# -- things --------------------------------------------------------------------------------------

ODD = ("odd.example", "even.example")


def _definition(group: str, plural: str, scope: str) -> dict[str, Any]:
    kind = f"{plural.title()}{group.partition('.')[0].title()}"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


ODD_KINDS = (
    _definition("odd.example", "namespaces", "Cluster"),
    _definition("odd.example", "watch", "Cluster"),
    _definition("odd.example", "status", "Namespaced"),
    _definition("even.example", "namespaces", "Namespaced"),
    _definition("even.example", "watch", "Namespaced"),
    _definition("even.example", "clusterspaces", "Namespaced"),
)
"""Custom resources that are called what paths are made of."""

_POD = {"containers": [{"name": "main", "image": "web:1"}]}
_TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": _POD}
_ROLE_REF = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}
_SUBJECTS = [{"kind": "User", "apiGroup": RBAC, "name": "somebody"}]

KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "namespaces": ("v1", "Namespace", {}),
    "nodes": ("v1", "Node", {}),
    "configmaps": ("v1", "ConfigMap", {"data": {"k": "v"}}),
    "secrets": ("v1", "Secret", {"data": {"k": "dg=="}}),
    "serviceaccounts": ("v1", "ServiceAccount", {}),
    "pods": ("v1", "Pod", {"spec": _POD}),
    "services": ("v1", "Service", {"spec": {"ports": [{"port": 80}], "clusterIP": "None"}}),
    "deployments": ("apps/v1", "Deployment", {"spec": {
        "selector": {"matchLabels": {"app": "x"}}, "template": _TEMPLATE}}),
    "leases": ("coordination.k8s.io/v1", "Lease", {"spec": {"holderIdentity": "x"}}),
    "roles": (f"{RBAC}/v1", "Role", {"rules": [rule("get", "core", "configmaps")]}),
    "rolebindings": (f"{RBAC}/v1", "RoleBinding", {"roleRef": _ROLE_REF, "subjects": _SUBJECTS}),
    "clusterroles": (f"{RBAC}/v1", "ClusterRole", {"rules": [rule("get", "core", "configmaps")]}),
    "clusterrolebindings": (f"{RBAC}/v1", "ClusterRoleBinding", {
        "roleRef": _ROLE_REF, "subjects": _SUBJECTS}),
    "priorityclasses": ("scheduling.k8s.io/v1", "PriorityClass", {"value": 1}),
    "propagationpolicies": ("policy.karmada.io/v1alpha1", "PropagationPolicy", {"spec": {
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]}}),
    "namespaces.odd.example": ("odd.example/v1", "NamespacesOdd", {}),
    "watch.odd.example": ("odd.example/v1", "WatchOdd", {}),
    "status.odd.example": ("odd.example/v1", "StatusOdd", {}),
    "namespaces.even.example": ("even.example/v1", "NamespacesEven", {}),
    "watch.even.example": ("even.example/v1", "WatchEven", {}),
    "clusterspaces.even.example": ("even.example/v1", "ClusterspacesEven", {}),
}  # fmt: skip
"""What can be made, by plural (and group, where two have one): apiVersion, kind and the rest."""

CLUSTER_WIDE = (
    "namespaces", "nodes", "clusterroles", "clusterrolebindings", "priorityclasses",
    "namespaces.odd.example", "watch.odd.example",
)  # fmt: skip
NAMESPACED = tuple(each for each in KINDS if each not in CLUSTER_WIDE)


def base_of(resource: str) -> str:
    version = KINDS[resource][0]
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def plural_of(resource: str) -> str:
    return resource.partition(".")[0]


def collection(resource: str, namespace: str) -> str:
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{base_of(resource)}{inside}/{plural_of(resource)}"


def thing(resource: str, namespace: str, name: str) -> dict[str, Any]:
    version, kind, rest = KINDS[resource]
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


# -- requests ------------------------------------------------------------------------------------

SHAPES = (
    "{B}/{R}",
    "{B}/{R}/{M}",
    "{B}/{R}/{M}/{S}",
    "{B}/{R}/{M}/{S}/{O}",
    "{B}/namespaces/{N}/{R}",
    "{B}/namespaces/{N}/{R}/{M}",
    "{B}/namespaces/{N}/{R}/{M}/{S}",
    "{B}/namespaces/{N}/{R}/{M}/{S}/{O}",
    "{B}/namespaces/{N}/{R}/{M}/",
    "{B}/namespaces/{N}",
    "{B}/namespaces/{N}/status",
    "{B}/namespaces/{N}/finalize",
    "{B}/namespaces/{N}/status/{O}",
    "{B}/namespaces/{N}/status/{R}/{M}",
    "{B}/namespaces/{N}/finalize/{O}",
    "{B}/namespaces/{N}/namespaces",
    "{B}/namespaces/{N}/namespaces/{O}",
    "{B}/namespaces/{N}/namespaces/{N}",
    "{B}/namespaces/{N}/namespaces/{O}/status",
    "{B}/namespaces/{N}/namespaces/{O}/finalize",
    "{B}/namespaces/{N}/namespaces/{O}/{R}/{M}",
    "{B}/namespaces/{N}/{R}/namespaces/{O}",
    "{B}/namespaces/{N}/{R}/{M}/namespaces/{O}",
    "{B}/namespaces/{N}/watch/{R}/{M}",
    "{B}/namespaces/namespaces/{R}/{M}",
    "{B}/namespaces/status/{R}/{M}",
    "{B}/watch/{R}",
    "{B}/watch/{R}/{M}",
    "{B}/watch/namespaces/{N}",
    "{B}/watch/namespaces/{N}/{R}",
    "{B}/watch/namespaces/{N}/{R}/{M}",
    "{B}/watch/namespaces/{N}/namespaces/{O}",
    "{B}/watch/watch/{R}/{M}",
    "{B}/proxy/namespaces/{N}/{R}/{M}",
    "{B}//namespaces/{N}/{R}/{M}",
    "{B}/namespaces//{R}/{M}",
    "{B}/namespaces/{N}//{R}",
    "{B}/namespaces/{N}/../{O}/{R}/{M}",
    "{B}/namespaces/{N}/%2e%2e/{O}/{R}/{M}",
    "{B}/namespaces/{N}%2F{R}/{M}",
    "{B}/namespaces/{N}/{R}/%252e%252e",
    "{B}/%6eamespaces/{N}/{R}/{M}",
    "{B}/namespaces/{N}/%6eamespaces/{O}",
    "{B}/namespaces/{N}/{R}/{M}%00",
    "{B}/namespaces/{N}/{R};/{M}",
    "{B}/namespaces/{N}/{R}/{M}/%73tatus",
)
"""Every way to put a resource, names and namespaces one behind the other that somebody may try."""

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
PARTS = ("status", "scale", "exec", "attach", "log", "proxy", "eviction", "finalize", "binding",
         "portforward", "token", "approval", "made-up")  # fmt: skip
PATCH_TYPES = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
QUERIES = (
    "watch=true", "watch=0", "dryRun=All", "fieldSelector=metadata.name%3Done",
    "fieldSelector=metadata.name%3Dtwo,metadata.namespace%3Dtenant-r", "labelSelector=a%3Db",
    "limit=1", "resourceVersion=0", "fieldManager=f&force=true", "namespace=victim",
    "fieldSelector=metadata.name%21%3Done", "propagationPolicy=Orphan", "timeoutSeconds=1",
)  # fmt: skip
GIVEN = (
    [rule("*", "*", "*")],
    [rule("get", "core", "configmaps")],
    [rule("get list", "core", "configmaps"), rule("get", "core", "secrets")],
    [rule("create", "core", "pods/exec")],
    [rule("get", "core", "configmaps", "one")],
    [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}],
    [],
)
ROLES = (("ClusterRole", "cluster-admin"), ("ClusterRole", "view"), ("ClusterRole", "edit"),
         ("Role", "one"), ("Role", "given-tenant"), ("ClusterRole", "missing"))  # fmt: skip
UPGRADE = (("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13"),
           ("sec-websocket-key", "MDEyMzQ1Njc4OWFiY2RlZg=="))  # fmt: skip


class Requests:
    """Requests without end, the same ones for the same seed."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def pick(self, *weighted: tuple[int, Any]) -> Any:
        weights, values = zip(*weighted, strict=True)
        return self.random.choices(values, weights)[0]

    def path(self, resource: str | None, likely: str) -> tuple[str, str, str, str]:
        """Return a path, and the resource, namespace and name it was made of."""
        chosen = self.random.choice
        resource = resource or chosen(tuple(KINDS))
        space, other = chosen(SPACES), chosen((*SPACES, "status", "watch", "default"))
        if self.random.random() < 0.6:
            space = likely
        elif self.random.random() < 0.2:
            space = chosen(("karmada-es-west", "karmada-es-east", "karmada-cluster", "default"))
        name = self.pick((6, chosen(("one", "two"))), (3, chosen(NAMES)), (1, "west.1a2b3"))
        scoped = "{B}/{R}" if resource in CLUSTER_WIDE else "{B}/namespaces/{N}/{R}"
        shape = self.pick(
            (5, scoped), (8, scoped + "/{M}"), (2, scoped + "/{M}/{S}"), (5, chosen(SHAPES))
        )
        path = shape.format(
            B=base_of(resource),
            R=plural_of(resource),
            N=space,
            O=other,
            M=name,
            S=chosen(PARTS),
        )
        return path, resource, space, name

    def query(self) -> str:
        if self.random.random() < 0.65:
            return ""
        return "?" + "&".join(self.random.sample(QUERIES, self.random.choice((1, 1, 2))))

    def body(self, method: str, resource: str, space: str, name: str) -> tuple[bytes, str]:
        """Return a body that may or may not be about what the URL names, and its type."""
        chosen = self.random.choice
        if method in ("GET", "HEAD"):
            return b"", ""
        if method == "DELETE":
            return (b"", "") if self.random.random() < 0.8 else (b'{"kind":"DeleteOptions"}', "")
        told = self.pick((6, name), (2, chosen(NAMES)), (1, f"new-{chosen(NAMES)}"))
        where = self.pick((6, space), (2, chosen(SPACES)), (2, ""))
        whole = thing(resource, "" if resource in CLUSTER_WIDE else where, told)
        whole["metadata"]["labels"] = {"by": f"x{self.random.randrange(1000)}"}
        if plural_of(resource) in ("roles", "clusterroles"):
            whole["rules"] = chosen(GIVEN)
        if resource in ("rolebindings", "clusterrolebindings"):
            kind, role = chosen(ROLES)
            whole["roleRef"] = {"apiGroup": RBAC, "kind": kind, "name": role}
            user = chosen(("tenant", "rolemaker", "viewer"))
            whole["subjects"] = [{"kind": "User", "apiGroup": RBAC, "name": user}]
        if method != "PATCH":
            return json.dumps(whole).encode(), ""
        kind = chosen(PATCH_TYPES)
        patch: Any = whole
        if kind == "application/json-patch+json":
            patch = [{"op": "add", "path": "/metadata/labels", "value": {"by": "json"}}]
        elif kind != "application/apply-patch+yaml":
            patch = self.pick(
                (4, {"metadata": {"labels": whole["metadata"]["labels"]}}),
                (1, {"metadata": {"name": told, "namespace": where}}),
                (2, {key: whole[key] for key in ("rules", "subjects", "spec") if key in whole}),
                (1, {"status": {"observedGeneration": self.random.randrange(1000)}}),
            )
        return json.dumps(patch).encode(), kind

    def headers(self) -> Iterator[tuple[str, str]]:
        chosen = self.random.choice
        if self.random.random() < 0.06:
            yield "impersonate-user", chosen(("viewer", "root", "tenant", "system:admin"))
            if self.random.random() < 0.5:
                yield "impersonate-group", chosen(("viewers", "system:masters", "tenants"))
        if self.random.random() < 0.02:
            yield "x-remote-user", "root"
            yield "x-remote-group", "system:masters"

    def placed(self, path: str, body: bytes) -> tuple[str, bytes]:
        """Say somewhere in a request which cluster it is for: once, twice, or not at all."""
        random, chosen = self.random, self.random.choice
        cluster = chosen((*MEMBERS, *MEMBERS, HUB, "hub", "all", "missing"))
        other = cluster if random.random() < 0.9 else chosen((*MEMBERS, HUB, "*"))
        way = random.choices(range(7), (12, 30, 12, 12, 16, 8, 10))[0]
        pieces = path.split("/")
        start = 3 if pieces[1:2] == ["api"] else 4
        if way == 1 and len(pieces) > start:  # in the last word but the resource
            place = random.randrange(start, len(pieces))
            pieces[place] = f"{pieces[place]}.clusterspace.{cluster}"
        elif way == 2:  # in the words after `namespaces`
            for place, word in enumerate(pieces[:-1]):
                if word == "namespaces":
                    pieces[place + 1] += f".clusterspace.{cluster}"
        elif way == 3:
            place = chosen((start, start + 2, start + 1))
            pieces[place:place] = ["clusterspaces", cluster]
        elif way == 4:
            pieces[1:1] = ["clusterspaces", cluster]
        elif way == 5:
            pieces[1:1] = proxied(cluster, "").split("/")[1:]
        elif way == 6:
            body = body.replace(b'"name": "one"', f'"name": "one.clusterspace.{cluster}"'.encode())
            body = body.replace(
                b'"namespace": "tenant-r"', f'"namespace": "tenant-r.clusterspace.{other}"'.encode()
            )
        if random.random() < 0.1:
            pieces[-1] += f".clusterspace.{other}"
        return "/".join(pieces), body

    def other_path(self) -> str:
        return self.random.choice(
            ("/version", "/metrics", "/api", "/apis/apps/v1", "/openapi/v3", "/healthz", "/", "/x")
        )


def proxied(cluster: str, path: str) -> str:
    """Return a path as it is asked of a member through the hub."""
    return f"/apis/{CLUSTERS}/v1alpha1/clusters/{quote(cluster)}/proxy{path}"


WORLD = World(MEMBERS, TOKENS, ODD_KINDS, furnish)
