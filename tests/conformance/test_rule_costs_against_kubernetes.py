"""What rules of definitions are estimated to cost, here and by a real kube-apiserver."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.real_kubernetes import running_kubernetes
from tests.conformance.test_builtin_answers import RealServer

from clusterspace.builtins.validation.definitions import check_schema

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All"
PLACE = "spec.validation.openAPIV3Schema"
TEXT = {"type": "string"}
SHORT = {**TEXT, "maxLength": 20}
NUMBER = {"type": "integer"}


def schema(rule: str, **properties: Any) -> dict[str, Any]:
    rules = [{"rule": rule}] if rule else []
    spec = {"type": "object", "properties": properties}
    return {"type": "object", "properties": {"spec": {**spec, "x-kubernetes-validations": rules}}}


def schemas() -> Iterator[dict[str, Any]]:
    for most in (10, 100, 1_000, 10_000, None):

        def bounded(kind: str, of: Any, most: int | None = most) -> dict[str, Any]:
            return of if most is None else {**of, kind: most}

        def listed(of: Any) -> dict[str, Any]:
            return bounded("maxItems", {"type": "array", "items": of})

        def mapped(of: Any) -> dict[str, Any]:
            return bounded("maxProperties", {"type": "object", "additionalProperties": of})

        long = bounded("maxLength", TEXT)
        bare = {"type": "object", "properties": {"b": NUMBER, "c": NUMBER}}
        pair = {**bare, "x-kubernetes-validations": [{"rule": "self.b < self.c"}]}
        yield schema("self.a.all(x, x.size() < 5)", a=listed(TEXT))
        yield schema("self.a.all(x, self.a.exists(y, x == y))", a=listed(NUMBER))
        yield schema("self.a.all(x, self.a.exists_one(y, x == y))", a=listed(SHORT))
        yield schema("self.a.map(x, x + 'a').size() > 3", a=listed(TEXT))
        yield schema("self.a.filter(x, x.startsWith('abc')).size() > 3", a=listed(SHORT))
        yield schema("", a=listed(pair))
        yield schema("", a=listed({"type": "object", "properties": {"d": listed(pair)}}))
        yield schema("self.a.isSorted() && self.a.sum() < 5", a=listed(NUMBER))
        yield schema("'x' in self.a", a=listed(SHORT))
        yield schema("self.a.all(k, self.a[k].size() > 2)", a=mapped(TEXT))
        yield schema("self.a.all(k, k.matches('a+'))", a=mapped(NUMBER))
        yield schema("self.a.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", a=long)
        yield schema("self.a == self.b", a=long, b=TEXT)
        yield schema("self.a.contains(self.b)", a=long, b=TEXT)
        yield schema("self.a.split(',').all(x, x.size() > 1)", a=long)
        yield schema("self.a.lowerAscii() == self.a", a=long)
        yield schema("self.a.all(x, x.all(y, y > 1))", a=listed(listed(NUMBER)))
        yield schema(
            "has(self.a) ? self.a.all(x, x > self.b) : self.b > 3", a=listed(NUMBER), b=NUMBER
        )
        yield schema("self.a == oldSelf.a", a=listed(NUMBER))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as kubernetes:
        yield RealServer(kubernetes.url)


def test_rules_are_too_dear_where_kubernetes_finds_them_too_dear(server: RealServer) -> None:
    different: list[Any] = []
    for each in schemas():
        version = {"name": "v1", "served": True, "storage": True}
        definition = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.shop.example.com"},
            "spec": {
                "group": "shop.example.com",
                "scope": "Cluster",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{**version, "schema": {"openAPIV3Schema": each}}],
            },
        }
        status, answer = server.ask("POST", DEFINITIONS, definition)
        causes = answer["details"]["causes"] if status == 422 else []
        theirs = sorted((cause["field"], cause["message"]) for cause in causes)
        ours = sorted((cause.field, cause.message) for cause in check_schema(each, PLACE))
        if ours != theirs:
            different.append((each, ours, theirs))
    assert different == []
