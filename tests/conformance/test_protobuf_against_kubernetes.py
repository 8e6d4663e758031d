"""Our protobuf beside that of a real kube-apiserver: the same object, the same bytes."""

import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.conformance.real_kubernetes import TOKEN, running_kubernetes, wait_until
from tests.conformance.test_builtin_answers import Kinds, RealServer, documents, kind_of, label

from clusterspace.apiserver.http.request_info import Protobuf, negotiate, negotiate_stream
from clusterspace.errors import NotAcceptable
from clusterspace.kube import statuses
from clusterspace.kube.protobuf.bodies import decode
from clusterspace.kube.protobuf.encoding import (
    encode,
    encode_list,
    encode_message,
    encode_watch_event,
)

PROTOBUF = "application/vnd.kubernetes.protobuf"


class ProtobufServer(RealServer):
    """A kube-apiserver that is asked for protobuf, too."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.address = url.removeprefix("https://")

    def create(self, path: str, document: Any) -> tuple[int, Any]:
        # JSON inside of an object is kept to the letter, its spaces included. We have none.
        return self.ask("POST", path, json.dumps(document, separators=(",", ":")))

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        sent = body if isinstance(body, str | None) else json.dumps(body)
        status, _, answer = self.exchange(method, path, sent, headers)
        return status, json.loads(answer)

    def read(self, path: str, accept: str = PROTOBUF) -> tuple[int, str, bytes]:
        return self.exchange("GET", path, None, {"Accept": accept})

    def exchange(
        self, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[int, str, bytes]:
        trust = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(self.address, context=trust, timeout=10)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {TOKEN}", **headers})
            answer = connection.getresponse()
            return answer.status, answer.headers["content-type"], answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProtobufServer]:
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes")) as kubernetes:
        started = ProtobufServer(kubernetes.url)
        pod = next(each for each in documents("builtin_objects.yaml") if each["kind"] == "Pod")
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        wait_until(lambda: started.ask("POST", path, pod)[0] == 201)
        yield started


def test_every_built_in_object_is_written_byte_for_byte(server: ProtobufServer) -> None:
    kinds = Kinds(server)
    different: dict[str, Any] = {}
    for document in documents("builtin_objects.yaml"):
        path, _ = kinds.collection(kind_of(document))
        status, made = server.create(path, document)
        assert status == 201, (label(document), made)
        one = f"{path}/{made['metadata']['name']}"
        # Read twice, as long as nobody writes in between: its controllers finish some objects.
        while True:
            _, before = server.ask("GET", one)
            _, content_type, theirs = server.read(one)
            if server.ask("GET", one)[1] == before:
                break
        assert content_type == PROTOBUF
        if encode(before) != theirs:
            different[label(document)] = (before, decode(theirs))
        # Left there, a quota or a limit would have its say about the pods that follow.
        server.ask("DELETE", one)
    assert different == {}


@pytest.mark.parametrize(
    "path",
    [
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        "/api/v1/namespaces?limit=2",
        "/api/v1/pods",
    ],
)
def test_a_list_is_written_byte_for_byte(server: ProtobufServer, path: str) -> None:
    _, listed = server.ask("GET", path)
    # Both at one revision: a server that was just started still writes roles of its own.
    exactly = f"resourceVersion={listed['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    path = f"{path}{'&' if '?' in path else '?'}{exactly}"
    _, listed = server.ask("GET", path)
    kind = listed["kind"].removesuffix("List")
    version = listed["apiVersion"]

    ours = encode_list(
        version,
        listed["kind"],
        listed["metadata"],
        [encode_message(item, version, kind) for item in listed["items"]],
    )

    assert b"".join(ours) == server.read(path)[2]


def test_events_are_framed_byte_for_byte(server: ProtobufServer) -> None:
    path = "/api/v1/namespaces?watch=1&timeoutSeconds=1&labelSelector=kubernetes.io/metadata.name"
    _, content_type, theirs = server.read(path)
    _, _, in_json = server.read(path, "application/json")

    events = [json.loads(line) for line in in_json.splitlines()]
    ours = [encode_watch_event(event["type"], encode(event["object"])) for event in events]

    assert content_type == f"{PROTOBUF};stream=watch"
    # It sends what there is in any order.
    assert sum(map(len, ours)) == len(theirs)
    assert all(event in theirs for event in ours)
    assert len(ours) >= 4


def test_a_refusal_is_written_byte_for_byte(server: ProtobufServer) -> None:
    _, refusal = server.ask("GET", "/api/v1/namespaces/none")

    assert encode(refusal) == server.read("/api/v1/namespaces/none")[2]


@pytest.mark.parametrize(
    ("rest", "accept"),
    [
        ("/default", "text/csv"),
        ("/default", f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1"),
        ("/default", "application/json;as=Cake;g=meta.k8s.io;v=v1"),
        ("?watch=1", "application/yaml"),
    ],
)
def test_what_cannot_be_served_is_refused_in_the_same_words(
    server: ProtobufServer, rest: str, accept: str
) -> None:
    _, _, theirs = server.read(f"/api/v1/namespaces{rest}", accept)
    choose = negotiate_stream if "watch" in rest else negotiate

    with pytest.raises(NotAcceptable) as refused:
        choose(accept, Protobuf.OBJECTS)

    assert statuses.status_of(refused.value) == yaml.safe_load(theirs)
