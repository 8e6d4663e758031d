"""An OIDC issuer as a process of its own: HTTPS, a discovery document, keys that can be rolled.

    python -m tests.component.oidc_issuer DIRECTORY

DIRECTORY has `tls.crt` and `tls.key`; what is answered is read from `jwks.json` and
`discovery.json` there, and what was asked is written to `asked`. Its port is in `port`.
"""

import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(sys.argv[-1])
FILES: Final = {
    "/.well-known/openid-configuration": "discovery.json",
    "/elsewhere/discovery": "discovery.json",
    "/keys": "jwks.json",
}


class Answers(BaseHTTPRequestHandler):
    """Answers from files."""

    def do_GET(self) -> None:
        with (DIRECTORY / "asked").open("a") as asked:
            asked.write(f"{self.path}\n")
        file = DIRECTORY / FILES.get(self.path, "nothing")
        body = file.read_bytes() if file.exists() else b"{}"
        self.send_response(200 if file.exists() else 404)
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
