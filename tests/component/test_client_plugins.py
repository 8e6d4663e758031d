import json
import stat
import sys
from pathlib import Path

import pytest

from clusterspace.client.settings import (
    AuthInfo,
    ConnectionSettings,
    Credentials,
    ExecPlugin,
    ask_plugin,
)
from clusterspace.errors import CredentialsUnusable
from clusterspace.testing.clocks import ManualClock

V1 = "client.authentication.k8s.io/v1"

PRINTS = f"""
import json, os, pathlib, sys
here = pathlib.Path(sys.argv[1])
number = len(list(here.glob("run-*"))) + 1
(here / f"run-{{number}}").write_text(os.environ["KUBERNETES_EXEC_INFO"])
status = {{"token": f"token-{{number}}-{{os.environ.get('FLAVOUR', '')}}-{{sys.argv[2]}}"}}
if len(sys.argv) > 3:
    status["expirationTimestamp"] = sys.argv[3]
print(json.dumps({{"apiVersion": "{V1}", "kind": "ExecCredential", "status": status}}))
"""


def plugin_in(directory: Path, text: str, *arguments: str) -> ExecPlugin:
    script = directory / "plugin"
    script.write_text(f"#!{sys.executable}\n{text}")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return ExecPlugin(
        V1,
        str(script),
        (str(directory), *arguments),
        environment=(("FLAVOUR", "sweet"),),
        wants_cluster=True,
    )


def settings_with(plugin: ExecPlugin) -> ConnectionSettings:
    identity = AuthInfo(exec_plugin=plugin)
    return ConnectionSettings("west", "https://west.example:6443", identity=identity)


async def test_a_plugin_is_run_with_its_arguments_and_never_through_a_shell(tmp_path: Path):
    plugin = plugin_in(tmp_path, PRINTS, "$(touch pwned); `true`")

    answer = await ask_plugin(plugin, settings_with(plugin))

    assert answer.token == "token-1-sweet-$(touch pwned); `true`"
    told = json.loads((tmp_path / "run-1").read_text())
    assert told["spec"]["cluster"]["server"] == "https://west.example:6443"


async def test_a_credential_is_kept_until_shortly_before_it_expires(tmp_path: Path):
    clock = ManualClock(1_700_000_000.0)  # 2023-11-14T22:13:20Z
    plugin = plugin_in(tmp_path, PRINTS, "x", "2023-11-14T23:13:20Z")
    credentials = Credentials(settings_with(plugin), clock)

    first = await credentials.get()
    await clock.advance(3500)
    second = await credentials.get()
    await clock.advance(90)
    third = await credentials.get()

    assert first.authorization == second.authorization == "Bearer token-1-sweet-x"
    assert third.authorization == "Bearer token-2-sweet-x"


async def test_a_credential_that_was_refused_is_asked_for_anew(tmp_path: Path):
    plugin = plugin_in(tmp_path, PRINTS, "x")
    credentials = Credentials(settings_with(plugin), ManualClock())

    await credentials.get()
    assert credentials.refused()

    assert (await credentials.get()).authorization == "Bearer token-2-sweet-x"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("import sys; sys.exit('no ticket')", "failed with 1: no ticket"),
        ("print('hello')", "no ExecCredential we can read"),
        ('print(\'{"apiVersion": "x", "kind": "Pod", "status": {}}\')', "it is x Pod"),
        ("import time; time.sleep(60)", "printed nothing within 0.2s"),
    ],
)
async def test_a_plugin_that_fails_names_the_cluster_and_what_went_wrong(
    tmp_path: Path, text: str, complaint: str
):
    plugin = plugin_in(tmp_path, text)
    seconds = 0.2 if "sleep" in text else 10

    with pytest.raises(CredentialsUnusable, match="cluster west") as caught:
        await ask_plugin(plugin, settings_with(plugin), seconds=seconds)

    assert complaint in str(caught.value)


async def test_a_plugin_that_is_not_installed_says_how_to_install_it(tmp_path: Path):
    plugin = ExecPlugin(V1, str(tmp_path / "nobody"), install_hint="install it with cake")

    with pytest.raises(CredentialsUnusable, match="install it with cake"):
        await ask_plugin(plugin, settings_with(plugin))
