"""Bodies that are large, deep, wide or odd: what a tenant may send, drawn from a seed.

Most begin as an object that is right and have one place blown up, so that they get past the first
look and reach the rules of their kind. The rest are shapes that no object has.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from clusterspace.errors import ApiError
from clusterspace.kube.protobuf.encoding import encode as encode_protobuf

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
PATCHES: Final = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
LIMIT: Final = 3 * 1024 * 1024
TARGET: Final = "target"
_MAPS: Final = (
    "labels",
    "annotations",
    "data",
    "stringData",
    "binaryData",
    "matchLabels",
    "requests",
)

_POD_SPEC: Final = {
    "containers": [
        {
            "name": "web",
            "image": "nginx",
            "args": ["a"],
            "env": [{"name": "A", "value": "b"}],
            "ports": [{"containerPort": 80, "name": "http"}],
            "resources": {"requests": {"cpu": "1"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    ],
    "volumes": [{"name": "data", "emptyDir": {}}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
}
_LABELS: Final = {"app": "web"}
_WORKLOAD: Final = {
    "selector": {"matchLabels": _LABELS},
    "template": {"metadata": {"labels": _LABELS}, "spec": _POD_SPEC},
}
_KINDS: Final[tuple[tuple[str, str, str, dict[str, Any]], ...]] = (
    ("v1", "ConfigMap", "configmaps", {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}}),
    ("v1", "Secret", "secrets", {"stringData": {"a": "b"}, "data": {"c": "ZA=="}}),
    ("v1", "Pod", "pods", {"spec": _POD_SPEC}),
    ("v1", "Service", "services", {"spec": {"ports": [{"port": 80}], "selector": _LABELS}}),
    ("v1", "ServiceAccount", "serviceaccounts", {"secrets": [{"name": "a"}]}),
    (
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    ),
    ("apps/v1", "Deployment", "deployments", {"spec": _WORKLOAD}),
    ("apps/v1", "StatefulSet", "statefulsets", {"spec": {"serviceName": "a", **_WORKLOAD}}),
    ("apps/v1", "DaemonSet", "daemonsets", {"spec": _WORKLOAD}),
    (
        "batch/v1",
        "CronJob",
        "cronjobs",
        {
            "spec": {
                "schedule": "* * * * *",
                "jobTemplate": {
                    "spec": {"template": {"spec": {**_POD_SPEC, "restartPolicy": "Never"}}}
                },
            }
        },
    ),
    (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "networkpolicies",
        {
            "spec": {
                "podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                "ingress": [
                    {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}
                ],
            }
        },
    ),
    (
        "networking.k8s.io/v1",
        "Ingress",
        "ingresses",
        {
            "spec": {
                "rules": [
                    {
                        "host": "a.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "a", "port": {"number": 1}}},
                                }
                            ]
                        },
                    }
                ]
            }
        },
    ),
    (
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        {
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"},
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {
                            "name": "cpu",
                            "target": {"type": "Utilization", "averageUtilization": 50},
                        },
                    }
                ],
            }
        },
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "Role",
        "roles",
        {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    ),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "rolebindings",
        {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}
            ],
        },
    ),
)


@dataclass(frozen=True)
class Sent:
    """One request of an attacker."""

    method: str
    path: str
    content_type: str
    body: bytes
    what: str


def collection(api_version: str, plural: str, namespace: str) -> str:
    """Return where objects of a kind are."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{namespace}/{plural}"


def targets(namespace: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects that patches are for, with the place of each."""
    return [
        (collection(api_version, plural, namespace), _named(api_version, kind, fields, TARGET))
        for api_version, kind, plural, fields in _KINDS
    ]


def draw(seed: int, namespace: str) -> Sent:
    """Return the request of a seed, always the same one."""
    random = Random(seed)
    api_version, kind, plural, fields = random.choice(_KINDS)
    where = collection(api_version, plural, namespace)
    size = _size(random)
    form = random.choice(("create", "create", "replace", "patch", "patch", "odd"))
    if form == "odd":
        name, odd = random.choice(_ODD)
        content_type = random.choice((JSON, YAML, *PATCHES))
        is_patch = content_type in PATCHES
        method, path = ("PATCH", f"{where}/{TARGET}") if is_patch else ("POST", where)
        body = odd(random, size)[:LIMIT]
        return Sent(method, _query(random, path, size), content_type, body, f"{kind} {name} {size}")
    if form == "patch":
        content_type = random.choice(PATCHES)
        body, how = _patch(random, content_type, api_version, kind, fields, size)
        path = _query(random, f"{where}/{TARGET}", size)
        return Sent("PATCH", path, content_type, body[:LIMIT], f"{kind} {how} {size}")
    name = TARGET if form == "replace" else f"n{seed}"
    wanted, how = blown_up(random, _named(api_version, kind, fields, name), size)
    content_type, body = _written(random, wanted)
    method, path = ("PUT", f"{where}/{TARGET}") if form == "replace" else ("POST", where)
    return Sent(
        method, _query(random, path, size), content_type, body, f"{form} {kind} {how} {size}"
    )


def _named(api_version: str, kind: str, fields: dict[str, Any], name: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": []}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _size(random: Random) -> int:
    """Return how many parts: mostly some thousands, sometimes all that fits."""
    most = 250_000 if random.random() < 0.08 else 6_000
    return int(100 * (most / 100) ** random.random())


def _query(random: Random, path: str, size: int) -> str:
    # Large ones only rehearse: what is kept takes memory for as long as it is kept.
    dry = "dryRun=All&" if size > 2_000 or random.random() < 0.8 else ""
    strict = random.choice(("", "fieldValidation=Strict&", "fieldValidation=Ignore&"))
    return f"{path}?{dry}{strict}fieldManager=m{random.randrange(3)}&force=true"


def blown_up(random: Random, wanted: dict[str, Any], size: int) -> tuple[dict[str, Any], str]:
    """Return the object with one place made large, and what was done to it."""
    copied: dict[str, Any] = json.loads(json.dumps(wanted))
    places: list[tuple[Any, Any]] = []

    def walk(held: Any) -> None:
        steps = held.items() if isinstance(held, dict) else enumerate(held)
        for step, inner in list(steps):
            places.append((held, step))
            if isinstance(inner, dict | list):
                walk(inner)

    walk(copied)
    parent, step = random.choice(places)
    if random.random() < 0.65:
        # What is there stays of its type, so that the rules of the kind get to see it.
        lists = [(held, at) for held, at in places if isinstance(held[at], list)]
        maps = [(held, at) for held, at in places if at in _MAPS]
        parent, step = random.choice(lists + maps or places)
        name, grow = (
            ("filled", _filled) if isinstance(parent[step], dict) else ("numbered", _numbered)
        )
        name, grow = (name, grow) if random.random() < 0.7 else ("repeated", _repeated)
    else:
        name, grow = random.choice(_GROWTHS)
    parent[step] = grow(random, parent[step], size)
    return copied, f"{name} at {step}"


def _repeated(random: Random, held: Any, size: int) -> Any:
    element = held[0] if isinstance(held, list) and held else held
    if isinstance(held, dict) and random.random() < 0.5:
        value = next(iter(held.values()), "x")
        return {f"k{index}": value for index in range(size)}
    return [element] * (size // (1 + len(json.dumps(element)) // 20) + 1)


def _numbered(random: Random, held: Any, size: int) -> Any:
    """Return elements that differ in one text each, so that no two are alike."""
    element = held[0] if isinstance(held, list) and held else held
    if not isinstance(element, dict):
        return [f"v{index}" for index in range(size)]
    key = random.choice(list(element) or ["name"])
    return [{**element, key: f"v{index}"} for index in range(size // (1 + len(element)) + 1)]


def _filled(_random: Random, held: Any, size: int) -> Any:
    value = next(iter(held.values()), "x")
    return {f"k{index}": value for index in range(size)}


def _deep(random: Random, _held: Any, size: int) -> Any:
    depth = random.choice((50, 150, 190, 250, 900))
    value: Any = "end"
    for _ in range(depth):
        value = {"a": value} if random.random() < 0.5 else [value]
    return [value] * max(1, min(size, 200_000) // depth)


def _tree(random: Random, _held: Any, size: int) -> Any:
    if size <= 2:
        return random.choice([1, "a", True, None, 1.5, {}, []])
    width = random.randrange(2, 9)
    parts = [_tree(random, None, size // width) for _ in range(width)]
    if random.random() < 0.5:
        return parts
    return {f"f{index}": part for index, part in enumerate(parts)}


_GROWTHS: Final[tuple[tuple[str, Callable[[Random, Any, int], Any]], ...]] = (
    ("repeated", _repeated),
    ("repeated", _repeated),
    ("numbered", _numbered),
    ("numbered", _numbered),
    ("deep", _deep),
    ("tree", _tree),
    ("empty objects", lambda _r, _h, size: [{}] * size),
    ("empty lists", lambda _r, _h, size: [[]] * size),
    ("long text", lambda random, _h, size: random.choice('ax-./% é\n"') * size * 10),
    ("numbers", lambda random, _h, size: [random.choice((1e300, 1e-300, 0.1, 10**18, -1))] * size),
)


def _written(random: Random, wanted: Any) -> tuple[str, bytes]:
    choice = random.random()
    if choice < 0.25:
        return YAML, _as_yaml(wanted)[:LIMIT]
    if choice < 0.4:
        try:
            return PROTOBUF, encode_protobuf(wanted)[:LIMIT]
        except (ApiError, TypeError, ValueError, AttributeError, KeyError, OverflowError):
            pass  # not every odd value has a form there
    return JSON, json.dumps(wanted).encode()[:LIMIT]


def _as_yaml(value: Any) -> bytes:
    """Return block YAML; texts and scalars as JSON writes them, which YAML reads alike."""
    lines: list[str] = []

    def write(held: Any, indent: str) -> None:
        if len(lines) > 200_000:
            return
        if isinstance(held, dict) and held:
            for key, inner in held.items():
                is_block = isinstance(inner, dict | list) and inner and len(indent) < 120
                lines.append(f"{indent}{json.dumps(key)}: {'' if is_block else json.dumps(inner)}")
                if is_block:
                    write(inner, indent + " ")
        elif isinstance(held, list) and held:
            for inner in held:
                is_block = isinstance(inner, dict | list) and inner and len(indent) < 120
                lines.append(f"{indent}- {'' if is_block else json.dumps(inner)}")
                if is_block:
                    write(inner, indent + " ")

    write(value, "")
    return "\n".join(lines).encode()


def _patch(
    random: Random,
    content_type: str,
    api_version: str,
    kind: str,
    fields: dict[str, Any],
    size: int,
) -> tuple[bytes, str]:
    if content_type == PATCHES[0]:
        return _json_patch(random, fields, min(size, 12_000))
    change, how = blown_up(random, _named(api_version, kind, fields, TARGET), size)
    if content_type == PATCHES[3] and random.random() < 0.3:
        return _as_yaml(change), f"yaml {how}"
    return json.dumps(change).encode(), how


def _json_patch(random: Random, fields: dict[str, Any], size: int) -> tuple[bytes, str]:
    field = random.choice(list(fields))
    kinds: tuple[tuple[str, Callable[[int], dict[str, Any]]], ...] = (
        ("add", lambda i: {"op": "add", "path": f"/metadata/annotations/a{i}", "value": "b"}),
        ("copy", lambda i: {"op": "copy", "from": f"/{field}", "path": f"/{field}/x{i}"}),
        ("double", lambda i: {"op": "copy", "from": "/metadata", "path": f"/metadata/m{i}"}),
        ("test", lambda i: {"op": "test", "path": f"/{field}", "value": fields[field]}),
        ("move", lambda i: {"op": "move", "from": "/metadata/labels", "path": "/metadata/labels"}),
        ("insert", lambda i: {"op": "add", "path": "/metadata/finalizers/0", "value": f"a.b/{i}"}),
    )
    name, make = random.choice(kinds)
    return json.dumps([make(index) for index in range(size)]).encode(), f"{name} operations"


def _cut(random: Random, size: int) -> bytes:
    whole = json.dumps(_tree(random, None, size)).encode()
    return whole[: random.randrange(1, len(whole) + 1)]


_ODD: Final[tuple[tuple[str, Callable[[Random, int], bytes]], ...]] = (
    ("brackets", lambda _r, size: b"[" * size * 10),
    ("braces", lambda _r, size: b'{"a":' * size * 3),
    ("keys twice", lambda _r, size: b"{" + b'"a":1,' * size + b'"a":1}'),
    ("empty lists", lambda _r, size: b"[" + b"[]," * size * 4 + b"[]]"),
    ("numbers", lambda _r, size: b"[" + b"1e-300," * size + b"1]"),
    ("long number", lambda _r, size: b"1" * size * 10),
    ("escapes", lambda _r, size: b'{"a":"' + b"\\u0041" * size + b'"}'),
    ("spaces", lambda _r, size: b" " * size * 10 + b"{}"),
    ("quotes", lambda _r, size: b'"' * size * 10),
    ("random bytes", lambda random, size: random.randbytes(size * 4)),
    ("cut off", _cut),
    ("flow yaml", lambda _r, size: b"{a: [" + b"{b: c}, " * size + b"d]}"),
    ("yaml dashes", lambda _r, size: b"- " * size),
    ("yaml lines", lambda _r, size: b"".join(b"k%d: v\n" % index for index in range(size))),
    ("yaml anchors", lambda _r, size: b"".join(b"- &a%d x\n" % index for index in range(size))),
    ("yaml tags", lambda _r, size: b"- !!str x\n" * size),
    ("yaml keys twice", lambda _r, size: b"a: 1\n" * size),
    ("yaml folded", lambda _r, size: b"a: >\n" + b"  text\n" * size),
)
