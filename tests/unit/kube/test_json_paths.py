import msgspec
import pytest

from clusterspace.errors import MalformedPath
from clusterspace.kube.json_paths import find_in_text, read_json_path

POD = {
    "metadata": {"name": "web", "labels": {"a.b/c": "x"}},
    "spec": {"containers": [{"name": "one", "n": 1}, {"name": "two", "n": 2}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".metadata.name", ["web"]),
        (r".metadata.labels.a\.b/c", ["x"]),
        (".metadata.labels['a.b/c']", ["x"]),
        (".spec.containers[0].name", ["one"]),
        (".spec.containers[-1].name", ["two"]),
        (".spec.containers[9].name", []),
        (".spec.containers[*].name", ["one", "two"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        (".status.conditions[?(@.type!='Ready')].type", ["Old"]),
        (".spec.containers[?(@.n==2)].name", ["two"]),
        (".status.conditions[?(@.type=='No')].status", []),
        ("..name", ["web", "one", "two"]),
        (".nowhere.at.all", []),
        (".metadata.name.deeper", []),
    ],
)
def test_a_path_finds_what_is_there(path, found):
    assert list(read_json_path(path).find_all(POD)) == found


def test_the_first_value_is_the_one_shown():
    assert read_json_path(".spec.containers[*].name").find(POD) == "one"
    assert read_json_path(".nowhere").find(POD) is None


@pytest.mark.parametrize("path", ["name", "{.a}", ".a[", ".a[?(@.b==c)]", ".a[?(@.b)]", ".a b"])
def test_what_cannot_be_followed_is_refused(path):
    with pytest.raises(MalformedPath):
        read_json_path(path)


def test_a_path_of_fields_alone_tells_its_fields():
    assert read_json_path(".spec.replicas").fields == ("spec", "replicas")
    assert read_json_path(".spec.list[0]").fields == ()


@pytest.mark.parametrize(
    "path", [".a", ".a.b", ".a.b.c", ".x/y\\.z.b", ".a[0]", ".a[*].b", "..b", "['a']"]
)
@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"a":null}',
        '{"a":7}',
        '{"a":"text"}',
        '{"a":[1,{"b":2}]}',
        '{"a":{"b":null}}',
        '{"a":{"b":{"c":true}},"z":{"b":1}}',
        '{"a":{"b":1},"a":{"b":{"c":2}}}',
        '{"x/y.z":{"b":"there"},"a":{"c":1}}',
    ],
)
def test_in_text_a_path_finds_the_same_as_in_what_is_decoded(path: str, text: str):
    read = read_json_path(path)

    assert find_in_text(read, text.encode()) == list(read.find_all(msgspec.json.decode(text)))
