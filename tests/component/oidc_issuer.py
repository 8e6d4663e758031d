"""An OIDC issuer as a process of its own: HTTPS, a discovery document, keys that can be rolled.

    python -m tests.component.oidc_issuer DIRECTORY

DIRECTORY has `tls.crt` and `tls.key`; what is answered is read from `jwks.json` and
`discovery.json` there, and what was asked is written to `asked`. Its port is in `port`.

Who comes to `/authorize` is let in at once as `jane` and sent back with a code; `/token` gives an
ID token for it to who knows what was hashed into the challenge, and the client's secret if there is
one in `client_secret`. `behaviour.json` may name an `error` to send back instead, and claims.
"""

import base64
import hashlib
import json
import secrets
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import jwt

DIRECTORY: Final = Path(sys.argv[-1])
FILES: Final = {
    "/.well-known/openid-configuration": "discovery.json",
    "/elsewhere/discovery": "discovery.json",
    "/keys": "jwks.json",
}
LOGINS: Final[dict[str, dict[str, str]]] = {}


def behaviour() -> dict[str, Any]:
    file = DIRECTORY / "behaviour.json"
    return json.loads(file.read_text()) if file.exists() else {}


class Answers(BaseHTTPRequestHandler):
    """Answers from files."""

    def do_GET(self) -> None:
        with (DIRECTORY / "asked").open("a") as asked:
            asked.write(f"{self.path}\n")
        if urlsplit(self.path).path == "/authorize":
            self.let_in(dict(parse_qsl(urlsplit(self.path).query)))
            return
        file = DIRECTORY / FILES.get(self.path, "nothing")
        self.answer(200 if file.exists() else 404, file.read_bytes() if file.exists() else b"{}")

    def let_in(self, asked: dict[str, str]) -> None:
        code, error = secrets.token_urlsafe(), behaviour().get("error")
        LOGINS[code] = asked
        back = {"state": asked["state"], **({"error": error} if error else {"code": code})}
        self.send_response(302)
        self.send_header("Location", f"{asked['redirect_uri']}?{urlencode(back)}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        login = LOGINS.pop(form.get("code", ""), None)
        hashed = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
        if (
            login is None
            or challenge != login["code_challenge"]
            or form["redirect_uri"] != login["redirect_uri"]
            or not self.is_client(form)
        ):
            self.answer(400, b'{"error": "invalid_grant"}')
            return
        discovery = json.loads((DIRECTORY / "discovery.json").read_text())
        claims = {
            "iss": discovery["issuer"],
            "sub": "jane",
            "aud": login["client_id"],
            "exp": time.time() + 600,
            "nonce": login["nonce"],
            **behaviour().get("claims", {}),
        }
        signing = (DIRECTORY / "signing.pem").read_bytes()
        token = jwt.encode(claims, signing, "RS256", {"kid": "one"})
        self.answer(200, json.dumps({"id_token": token, "token_type": "Bearer"}).encode())

    def is_client(self, form: dict[str, str]) -> bool:
        file = DIRECTORY / "client_secret"
        if not file.exists():
            return True
        _, _, pair = self.headers.get("Authorization", "").partition(" ")
        name, _, given = base64.b64decode(pair).decode().partition(":")
        return (unquote(name), unquote(given)) == (form["client_id"], file.read_text())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        """Say nothing."""


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DIRECTORY / "tls.crt", DIRECTORY / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (DIRECTORY / "port").write_text(str(server.server_address[1]))
    server.serve_forever()


if __name__ == "__main__":
    main()
