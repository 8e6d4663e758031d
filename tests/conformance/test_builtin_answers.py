"""What our functions make of built-in objects, beside what a real kube-apiserver answers."""

import http.client
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.admitted import admitted
from tests.conformance.real_kubernetes import TOKEN, running_kubernetes, wait_until
from tests.corpus import corpus_dir

from clusterspace.builtins.defaults.apply import apply_defaults
from clusterspace.builtins.normal_form import is_built_in, normalize
from clusterspace.builtins.strategies import (
    Creation,
    prepare_for_create,
    prepare_for_update,
)
from clusterspace.builtins.validation.validate import validate_create, validate_update
from clusterspace.errors import MalformedObject
from clusterspace.kube.objects import with_metadata
from clusterspace.kube.resources import GroupVersionKind

_FOLDER = Path(__file__).parent
_NAMESPACE = "default"
_UID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ASKED_NOT_STORED = ("authentication.k8s.io", "authorization.k8s.io")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_OF_THE_REQUEST = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace")
# What follows these words is a diff of the server's own structs.
_DIFFED = "\n@@"


def documents(name: str) -> list[Any]:
    with (_FOLDER / name).open() as file:
        return list(yaml.safe_load_all(file))


def label(document: Any) -> str:
    described = document.get("object", document)
    return f"{described['kind']}-{described['metadata']['name']}"


class RealServer:
    """Requests to a kube-apiserver, whatever it answers."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("https://")
        # Its certificate is its own; both ends are on this machine.
        self._trust = ssl._create_unverified_context()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPSConnection(self._address, context=self._trust, timeout=10)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


class Kinds:
    """Where each kind is served."""

    def __init__(self, server: RealServer) -> None:
        self._server = server
        self._found: dict[str, Any] = {}

    def collection(self, kind: GroupVersionKind) -> tuple[str, bool]:
        root = kind.group_version.path
        if root not in self._found:
            self._found[root] = self._server.ask("GET", root)[1]["resources"]
        resource = next(
            each
            for each in self._found[root]
            if each["kind"] == kind.kind and "/" not in each["name"]
        )
        middle = f"/namespaces/{_NAMESPACE}" if resource["namespaced"] else ""
        return f"{root}{middle}/{resource['name']}", resource["namespaced"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as kubernetes:
        started = RealServer(kubernetes.url)
        # Its namespaces and priorities come a moment after it answers.
        pod = next(each for each in documents("builtin_objects.yaml") if each["kind"] == "Pod")
        path = f"/api/v1/namespaces/{_NAMESPACE}/pods?dryRun=All"
        wait_until(lambda: started.ask("POST", path, pod)[0] == 201)
        yield started


@pytest.fixture(scope="module")
def kinds(server: RealServer) -> Kinds:
    return Kinds(server)


def kind_of(document: Any) -> GroupVersionKind:
    return GroupVersionKind.of(document["apiVersion"], document["kind"])


def created(document: Any, uid: str = "", now: str = "2026-01-01T00:00:00Z") -> Any:
    """Take a body through everything the server does before it stores a new object."""
    kind = kind_of(document)
    defaulted = apply_defaults(kind, normalize(document, kind).object)
    creation = Creation(
        uid=uid,
        now=now,
        username="admin",
        user_uid="admin",
        groups=("system:masters", "system:authenticated"),
    )
    return prepare_for_create(kind, admitted(kind, defaulted), creation)


def bare(stored: Any) -> Any:
    """Return an object without what only the request knows."""
    return with_metadata(stored, **dict.fromkeys(_OF_THE_REQUEST))


def causes_of(status: Any) -> list[tuple[str, str, str]]:
    """Return the causes of a refusal, each once.

    The server walks maps in any order and has some checks twice, so neither is compared.
    """
    return sorted(
        {
            (each["reason"], each.get("field", ""), _UID.sub("", each["message"]).split(_DIFFED)[0])
            for each in status["details"]["causes"]
        }
    )


def our_causes(found: Any) -> list[tuple[str, str, str]]:
    return sorted(
        {(each.reason, each.field, _UID.sub("", each.message).rstrip("\n")) for each in found}
    )


def test_every_built_in_object_is_stored_as_a_kube_apiserver_stores_it(
    server: RealServer, kinds: Kinds
) -> None:
    different: dict[str, Any] = {}
    for document in documents("builtin_objects.yaml"):
        path, _ = kinds.collection(kind_of(document))
        status, answer = server.ask("POST", path, document)
        assert status == 201, (label(document), answer)
        metadata = answer["metadata"]
        # Left there, a quota or a limit would have its say about the pods that follow.
        server.ask("DELETE", f"{path}/{metadata['name']}")
        ours = created(document, metadata["uid"], metadata["creationTimestamp"])
        if bare(ours) != bare(answer):
            different[label(document)] = (bare(ours), bare(answer))
    assert different == {}


def test_what_a_kube_apiserver_accepts_is_accepted() -> None:
    refused = {
        label(document): found
        for document in documents("builtin_objects.yaml")
        if (found := validate_create(kind_of(document), created(document)))
    }

    assert refused == {}


def test_what_a_kube_apiserver_refuses_is_refused_for_the_same_reasons(
    server: RealServer, kinds: Kinds
) -> None:
    different: dict[str, Any] = {}
    for number, document in enumerate(documents("builtin_refusals.yaml")):
        kind = kind_of(document)
        path, is_namespaced = kinds.collection(kind)
        status, answer = server.ask("POST", f"{path}?dryRun=All", document)
        assert status == 422, (label(document), answer)
        ours = created(document)
        if is_namespaced:
            ours = with_metadata(ours, namespace=_NAMESPACE)
        found = our_causes(validate_create(kind, ours))
        if found != causes_of(answer):
            different[f"{number} {label(document)}"] = (found, causes_of(answer))
    assert different == {}


def recorded_creations() -> Iterator[tuple[Any, Any]]:
    """Yield the bodies of recorded requests that made a built-in object, and their answers."""
    for file in sorted((corpus_dir() / "apiserver").glob("*.json")):
        for step in json.loads(file.read_text())["steps"]:
            request, response = step.get("request", {}), step.get("response", {})
            body, answer = request.get("body"), response.get("body")
            if (request.get("method"), response.get("status")) != ("POST", 201):
                continue
            if not isinstance(body, dict) or not is_built_in(kind_of(body)):
                continue
            if kind_of(body).group not in _ASKED_NOT_STORED:
                yield body, answer


def test_recorded_creations_come_out_as_they_were_recorded() -> None:
    different: list[Any] = []
    creations = list(recorded_creations())
    assert creations, "no recordings of creations found"
    for body, answer in creations:
        ours = bare(created(body))
        recorded = {**bare(answer), "apiVersion": body["apiVersion"], "kind": body["kind"]}
        name = answer["metadata"].get("name")
        if timeless(with_metadata(ours, name=name)) != timeless(recorded):
            different.append((ours, recorded))
    assert different == []


def timeless(value: Any) -> Any:
    """Return a value with its times made alike: recordings have symbols in their place."""
    if isinstance(value, dict):
        return {key: timeless(held) for key, held in value.items()}
    if isinstance(value, list):
        return [timeless(held) for held in value]
    is_time = isinstance(value, str) and (value == "<time>" or _TIME.fullmatch(value))
    return "a time" if is_time else value


def test_what_may_not_change_may_not_change_here_either(server: RealServer, kinds: Kinds) -> None:
    different: dict[str, Any] = {}
    for number, change in enumerate(documents("builtin_changes.yaml")):
        document = change["object"]
        document["metadata"]["name"] = f"changed-{number}"
        kind = kind_of(document)
        path, _ = kinds.collection(kind)
        status, stored = server.ask("POST", path, document)
        assert status == 201, (label(change), stored)
        wanted = merged(stored, change["change"])
        one = f"{path}/{document['metadata']['name']}?dryRun=All"
        status, answer = server.ask("PUT", one, wanted)
        defaulted = apply_defaults(kind, normalize(wanted, kind).object)
        found = validate_update(kind, prepare_for_update(kind, defaulted, stored), stored)
        real = causes_of(answer) if status == 422 else []
        if our_causes(found) != real:
            different[f"{number} {label(change)}"] = (our_causes(found), real)
    assert different == {}


def merged(stored: Any, change: Any) -> Any:
    if not isinstance(change, dict) or not isinstance(stored, dict):
        return change
    kept = {key: held for key, held in stored.items() if change.get(key, ...) is not None}
    added = {key: merged(stored.get(key), held) for key, held in change.items() if held is not None}
    return {**kept, **added}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("v1 ConfigMap", {"data": {"a": 1}}),
        ("v1 ConfigMap", {"metadata": {"labels": []}}),
        ("v1 ConfigMap", {"metadata": {"creationTimestamp": "yesterday"}}),
        ("v1 Secret", {"data": {"a": "not base64"}}),
        ("v1 Pod", {"spec": {"containers": [{"resources": {"limits": {"cpu": "a lot"}}}]}}),
        ("v1 Pod", {"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": True}}}]}}),
        ("v1 PersistentVolume", {"spec": {"nfs": "server"}}),
        ("v1 LimitRange", {"spec": {"limits": [{"max": []}]}}),
        ("apps/v1 Deployment", {"spec": {"replicas": 1.5}}),
        ("apps/v1 StatefulSet", {"spec": {"volumeClaimTemplates": [{"kind": 1}]}}),
        ("coordination.k8s.io/v1 Lease", {"spec": {"renewTime": "2020-01-01T00:00:00Z"}}),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_in_the_same_words(
    server: RealServer, kinds: Kinds, kind: str, body: Any
) -> None:
    api_version, name = kind.split()
    document = {"apiVersion": api_version, "kind": name, **body}
    path, _ = kinds.collection(kind_of(document))

    _, answer = server.ask("POST", path, document)
    with pytest.raises(MalformedObject) as refusal:
        normalize(document, kind_of(document))

    assert (400, refusal.value.message) == (answer["code"], answer["message"])
