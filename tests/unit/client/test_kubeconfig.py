import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clusterspace.client.kubeconfig import (
    Kubeconfig,
    kubeconfig_files,
    merge_kubeconfigs,
    parse_kubeconfig,
)
from clusterspace.client.settings import ConnectionSettings, Impersonation
from clusterspace.errors import UnusableKubeconfig

HOME = Path("/home/me/.kube")


def config(
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    *,
    name: str = "west",
    current: str = "west",
) -> bytes:
    document = {
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": "https://west:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return msgspec.yaml.encode(document)


def parse(content: bytes, directory: Path | None = HOME) -> Kubeconfig:
    return parse_kubeconfig(content, place="config", directory=directory)


def settings(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None
) -> ConnectionSettings:
    return parse(config(cluster, user)).settings()


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_the_current_context_is_used_unless_another_is_named():
    both = merge_kubeconfigs([parse(config()), parse(config(name="east", current="east"))])

    assert both.settings().cluster == "west"
    assert both.settings("east").cluster == "east"
    assert both.settings("east", cluster="member1").cluster == "member1"


def test_of_entries_with_one_name_the_first_file_wins():
    first = parse(config({"server": "https://first"}, current=""))
    second = parse(config({"server": "https://second"}))

    merged = merge_kubeconfigs([first, second])

    assert merged.settings().server == "https://first"
    assert merged.current_context == "west"


def test_inline_data_wins_over_files_and_files_are_relative_to_the_kubeconfig():
    found = settings(
        {"certificate-authority-data": encoded(b"CA"), "certificate-authority": "ca.crt"},
        {"client-certificate": "pki/me.crt", "client-key": "/abs/me.key"},
    )

    assert found.trust.authority.data == b"CA"
    assert found.identity.certificate.file == HOME / "pki/me.crt"
    assert found.identity.key.file == Path("/abs/me.key")


def test_everything_a_cluster_entry_says_is_kept():
    found = settings(
        {
            "server": "https://west/prefix/",
            "tls-server-name": "kubernetes",
            "proxy-url": "http://proxy:3128",
            "disable-compression": True,
        }
    )

    assert found.server == "https://west/prefix"
    assert found.trust.server_name == "kubernetes"
    assert found.proxy_url == "http://proxy:3128"
    assert not found.compresses


def test_impersonation_becomes_headers():
    user = {
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"scopes": ["x", "y"]},
    }

    headers = settings(user=user).identity.impersonation.headers()

    assert headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-scopes", "x"),
        ("Impersonate-Extra-scopes", "y"),
    )
    assert Impersonation(groups=("a",)).headers() == ()


def test_an_exec_plugin_is_read_with_its_path_relative_to_the_kubeconfig():
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "bin/login",
        "args": ["--cluster", "west"],
        "env": [{"name": "A", "value": "1"}],
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
    }

    found = settings(user={"exec": plugin}).identity.exec_plugin

    assert found is not None
    assert found.command == str(HOME / "bin/login")
    assert found.arguments == ("--cluster", "west")
    assert found.environment == (("A", "1"),)
    assert found.wants_cluster


def test_secrets_do_not_show_when_settings_are_printed():
    found = settings(user={"token": "hunter2", "username": "u", "password": "hunter3"})

    assert "hunter" not in repr(found)


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}}),
        ({}, {"tokenFile": "/etc/shadow"}),
        ({"certificate-authority": "/etc/shadow"}, {}),
        ({}, {"client-certificate": "a", "client-key": "b"}),
    ],
)
def test_somebody_else_s_kubeconfig_reads_no_files_and_runs_no_programs(
    cluster: dict[str, Any], user: dict[str, Any]
):
    with pytest.raises(UnusableKubeconfig):
        parse(config(cluster, user), directory=None).settings()


@pytest.mark.parametrize(
    ("cluster", "user", "complaint"),
    [
        ({"server": "west:6443"}, {}, "server must start with http:// or https://"),
        ({"server": "https://"}, {}, "server names no host"),
        ({"server": "https://west?x=1"}, {}, "must not have a query"),
        ({"server": 5}, {}, "server must be a text"),
        ({"proxy-url": "socks5://proxy"}, {}, "proxy-url must start with"),
        ({"certificate-authority-data": "%%"}, {}, "certificate-authority-data is not base64"),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority": "ca"},
            {},
            "contradict each other",
        ),
        ({"insecure-skip-tls-verify": "yes"}, {}, "must be true or false"),
        ({}, {"client-certificate": "a"}, "come together"),
        ({}, {"auth-provider": {"name": "gcp"}}, "exec plug-in"),
        ({}, {"exec": {"apiVersion": "v1"}}, "apiVersion must be"),
        ({}, {"as-groups": "a"}, "as-groups must be a list"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(
    cluster: dict[str, Any], user: dict[str, Any], complaint: str
):
    with pytest.raises(UnusableKubeconfig) as caught:
        settings(cluster, user)

    assert complaint in str(caught.value)
    assert "west" in caught.value.place


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"a: [", "this is not YAML"),
        (b"- a", "fields were expected"),
        (b"clusters: 5", "clusters must be a list"),
        (b"{}", "there is no current-context"),
        (b"current-context: x", "there is no context named 'x'"),
    ],
)
def test_a_broken_kubeconfig_says_what_is_wrong(content: bytes, complaint: str):
    with pytest.raises(UnusableKubeconfig) as caught:
        parse(content).settings()

    assert complaint in str(caught.value)


def test_the_environment_may_name_several_files():
    named = kubeconfig_files({"KUBECONFIG": "/a:/b:"}, HOME)

    assert named == (Path("/a"), Path("/b"))
    assert kubeconfig_files({}, Path("/home/me")) == (Path("/home/me/.kube/config"),)
