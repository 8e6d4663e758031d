import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterspace.telemetry.logs import REDACTED, redact, redact_fields, redact_text

CANARY = "c4n4ryc4n4ryc4n4ry"
JWT = f"eyJhbGciOiJSUzI1NiJ9.{CANARY}.{CANARY}"
KUBECONFIG = f"""apiVersion: v1
kind: Config
users:
- name: admin
  user:
    something-new: {CANARY}
"""
PRIVATE_KEY = f"-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "authorization",
        "Proxy-Authorization",
        "Cookie",
        "Set-Cookie",
        "token",
        "id_token",
        "refreshToken",
        "X-Auth-Token",
        "password",
        "db_password",
        "client_secret",
        "client-key-data",
        "tls.key",
        "privateKey",
        "kubeconfig",
        "stringData",
        "kubectl.kubernetes.io/last-applied-configuration",
    ],
)
def test_a_field_with_the_name_of_a_secret_is_hidden(name: str):
    assert redact({"inner": {name: CANARY}}) == {"inner": {name: REDACTED}}
    assert redact_fields({name: {"deep": CANARY}}) == {name: REDACTED}


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {CANARY}",
        f"authorization=Basic {CANARY}",
        f"sent 'bearer {CANARY}' to the member",
        f"Cookie: session={CANARY}; other={CANARY}",
        f"header eyJ ok then {JWT} end",
        f"https://admin:{CANARY}@10.0.0.1:6443/api",
        f"GET /api/v1/pods?token={CANARY}&watch=1",
        f"GET /x?access_token={CANARY}",
        f"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{CANARY}, v4.channel",
        "token abcdef.c4n4ryc4n4ryc4n4",
        f"DB_PASSWORD={CANARY} started",
        f'body: {{"token": "{CANARY}"}}',
        f"body: {{'password': '{CANARY}'}}",
        f"settings:\n  adminPassword: {CANARY}\n  size: 3",
        PRIVATE_KEY,
        f"cut off -----BEGIN PRIVATE KEY-----\n{CANARY}",
        KUBECONFIG,
        f"client-key-data: {CANARY}",
        f'{{"kind":"Secret","data":{{"a":"{CANARY}"}}}}',
        f"kind: Secret\ndata:\n  a: {CANARY}",
    ],
)
def test_a_secret_inside_a_text_is_hidden(text: str):
    shown = redact_text(text)

    assert "c4n4ry" not in shown
    assert REDACTED in shown


def test_the_rest_of_the_text_stays_readable():
    shown = redact_text(f"PUT https://u:{CANARY}@host/api?token={CANARY}&limit=5 failed")

    assert shown == f"PUT https://{REDACTED}@host/api?token={REDACTED}&limit=5 failed"


@pytest.mark.parametrize(
    "text",
    [
        "work applied",
        "default/web",
        "unable to parse continue token: not valid",
        "https://10.0.0.1:6443/api/v1/pods?limit=500",
        "11111111-1111-1111-1111-111111111111",
        "registry.example.com/team/image:v1.2.3",
        "kind: Deployment",
        "user@example.com",
    ],
)
def test_ordinary_texts_are_left_alone(text: str):
    assert redact_text(text) == text


def test_the_data_of_a_secret_is_hidden_and_that_of_a_config_map_is_not():
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": CANARY}}
    config_map = {"kind": "ConfigMap", "data": {"a": "b"}}

    assert redact(secret) == {"kind": "Secret", "metadata": {"name": "s"}, "data": REDACTED}
    assert redact(config_map) == config_map


def test_the_items_of_a_list_of_secrets_are_hidden():
    listed = {"kind": "SecretList", "items": [{"data": {"a": CANARY}}]}

    assert redact(listed) == {"kind": "SecretList", "items": REDACTED}


def test_an_empty_secret_field_shows_that_it_is_empty():
    assert redact({"token": ""}) == {"token": None}


def test_bytes_are_counted_and_not_shown():
    assert redact(CANARY.encode()) == "<18 bytes>"


def test_a_very_long_text_is_cut():
    assert len(redact_text("x" * 100_000)) < 20_000


def test_a_very_deep_object_is_cut():
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"in": deep}

    assert json.dumps(redact(deep)).count("in") == 12


def test_the_original_is_left_as_it_was():
    fields = {"token": CANARY, "list": [CANARY]}

    redact(fields)

    assert fields == {"token": CANARY, "list": [CANARY]}


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters())
    | st.binary()
    | st.builds(object),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


@given(ANYTHING)
def test_whatever_is_logged_can_be_written_as_json(value: Any):
    assert msgspec.json.decode(msgspec.json.encode(redact(value))) is not ...


@given(st.text(), st.sampled_from(["token", "password", "authorization"]))
def test_a_named_secret_never_shows_whatever_it_holds(text: str, name: str):
    shown = redact([{name: f"{CANARY}{text}"}])

    assert CANARY not in json.dumps(shown)


@pytest.mark.parametrize(
    "repeated", ["a-", "eyJ-", "kind: ", "-----BEGIN ", "bearer ", '"', "://", "token", "\n", "- "]
)
def test_no_text_takes_long_to_look_through(repeated: str):
    text = (repeated * 16_000)[:16_000]

    started = time.perf_counter()
    redact_text(text)

    # About 10 ms where it is linear; seconds where an expression looks back again and again.
    assert time.perf_counter() - started < 1
