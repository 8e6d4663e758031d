"""Kubeconfigs we write are read back as they were meant."""

from pathlib import Path

import yaml

from clusterspace.client.settings import AuthInfo, ExecPlugin, Pem
from clusterspace.roots.kubeconfigs import kubeconfig_of, user_entry


def test_every_server_has_a_context_and_the_first_is_the_current_one():
    servers = {"fleet": "https://f:1", "west": "https://f:1/clusterspaces/west"}

    config = yaml.safe_load(kubeconfig_of(servers, b"authority", AuthInfo(token="t")))

    assert config["current-context"] == "fleet"
    assert [each["name"] for each in config["contexts"]] == ["fleet", "west"]
    assert config["clusters"][1]["cluster"]["server"] == "https://f:1/clusterspaces/west"
    assert config["users"] == [{"name": "admin", "user": {"token": "t"}}]


def test_an_identity_keeps_the_form_it_has():
    certificate = AuthInfo(certificate=Pem(b"c"), key=Pem(b"k"))
    plugin = ExecPlugin("client.authentication.k8s.io/v1", "login", ("--x",), (("A", "1"),))

    assert user_entry(certificate) == {
        "client-certificate-data": "Yw==",
        "client-key-data": "aw==",
    }
    assert user_entry(AuthInfo(token_file=Path("/t")))["tokenFile"] == "/t"
    assert user_entry(AuthInfo(exec_plugin=plugin))["exec"]["command"] == "login"
