"""Certificate requests nobody may get signed without an operator, and what each of them tries."""

import base64
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.unit.apiserver.identity.certificates.requested import (
    WEST,
    agent_request,
    pem,
    signing_request,
)

from clusterspace.apis.identities import AGENTS
from clusterspace.apiserver.http.users import AUTHENTICATED, User
from clusterspace.apiserver.identity.certificates.requests import CLIENT_SIGNER
from clusterspace.kube.objects import Object

EVERYBODY: Final = (AUTHENTICATED,)
WITH_TOKEN: Final = User("system:bootstrap:ourtok", ("system:bootstrappers", *EVERYBODY))
AGENT: Final = User(WEST, (AGENTS, *EVERYBODY))


@dataclass(frozen=True)
class Hostile:
    """One attempt: who makes which request."""

    tries: str
    request: Callable[[], Object]
    user: User = WITH_TOKEN


def _subject(tries: str, *names: str, groups: tuple[str, ...] = (AGENTS,)) -> Hostile:
    return Hostile(tries, lambda: signing_request(pem(names=names, groups=groups)))


def _groups(tries: str, *groups: str) -> Hostile:
    return _subject(tries, WEST, groups=groups)


def _extension(tries: str, *extensions: x509.ExtensionType) -> Hostile:
    return Hostile(tries, lambda: signing_request(pem(extensions=extensions)))


def _names(tries: str, name: x509.GeneralName) -> Hostile:
    return _extension(tries, x509.SubjectAlternativeName([name]))


def _spec(tries: str, **spec: Any) -> Hostile:
    return Hostile(tries, lambda: agent_request(**spec))


def _key(tries: str, make: Callable[[], object]) -> Hostile:
    return Hostile(tries, lambda: signing_request(pem(signed_by=make())))


def _also(tries: str, kind: x509.ObjectIdentifier, value: str) -> Hostile:
    other = x509.NameAttribute(kind, value)
    return Hostile(tries, lambda: signing_request(pem(others=(other,))))


def _made_by(tries: str, user: str, *groups: str) -> Hostile:
    return Hostile(tries, agent_request, User(user, (*groups, *EVERYBODY)))


def _damaged() -> Object:
    """Return a request whose signature was changed on the way."""
    body = pem().decode().splitlines()
    der = bytearray(base64.b64decode("".join(body[1:-1])))
    der[-1] ^= 0xFF
    text = base64.b64encode(bytes(der)).decode()
    return signing_request(f"{body[0]}\n{text}\n{body[-1]}\n".encode())


def _authority_flag() -> x509.ExtensionType:
    return x509.BasicConstraints(ca=True, path_length=None)


def _signs_certificates() -> x509.ExtensionType:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


HOSTILE: Final = (
    # Somebody else's name.
    _subject("another cluster's agent", "system:karmada:agent:east"),
    _subject("Karmada's installer", "system:karmada:agent:rbac-generator"),
    _subject("an agent of no cluster", "system:karmada:agent:"),
    _subject("a part of the control plane", "system:kube-controller-manager"),
    _subject("an administrator by name", "kubernetes-admin"),
    _subject("a service account", "system:serviceaccount:kube-system:default"),
    _subject("the bootstrap user itself", "system:bootstrap:ourtok"),
    _subject("two names, the right one first", WEST, "system:karmada:agent:east"),
    _subject("two names, the right one last", "system:karmada:agent:east", WEST),
    _subject("the right name twice", WEST, WEST),
    _subject("no name"),
    _subject("a name with a space behind it", WEST + " "),
    _subject("a name with a line break", WEST + "\n"),
    _subject("a name that goes on behind a zero byte", WEST + "\x00.evil"),
    _subject("a name in capitals", "system:karmada:agent:WEST"),
    _subject("a name that looks alike", "system:karmada:agent:w\u0435st"),
    # Other groups.
    _groups("the group that may do everything", "system:masters"),
    _groups("that group beside the right one", AGENTS, "system:masters"),
    _groups("that group in front of the right one", "system:masters", AGENTS),
    _groups("the group of nodes", "system:nodes"),
    _groups("the group of bootstrappers too", AGENTS, "system:bootstrappers"),
    _groups("the right group twice", AGENTS, AGENTS),
    _groups("no group"),
    _groups("a group in capitals", AGENTS.upper()),
    # More in the subject.
    _also("a unit", NameOID.ORGANIZATIONAL_UNIT_NAME, "system:masters"),
    _also("a serial number", NameOID.SERIAL_NUMBER, "1"),
    _also("a user id", NameOID.USER_ID, "root"),
    _also("a mail address", NameOID.EMAIL_ADDRESS, "root@example.com"),
    # Extensions and attributes.
    _names("another host name", x509.DNSName("kubernetes.default.svc")),
    _names("an address", x509.IPAddress(ipaddress.ip_address("10.0.0.1"))),
    _names("a mail address as alternative", x509.RFC822Name("root@example.com")),
    _names("a URI as alternative", x509.UniformResourceIdentifier("spiffe://hub/admin")),
    _names("its own name as alternative", x509.DNSName("west")),
    _extension("to be an authority", _authority_flag()),
    _extension("to sign certificates", _signs_certificates()),
    _extension("to be a server", x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])),
    Hostile("a password attribute", lambda: signing_request(pem(password=b"please"))),
    # Usages, life and signer.
    _spec("to serve", usages=["client auth", "server auth"]),
    _spec("to serve only", usages=["server auth"]),
    _spec("any usage", usages=["any"]),
    _spec("to sign certificates by usage", usages=["client auth", "cert sign"]),
    _spec("to sign code", usages=["client auth", "code signing"]),
    _spec("no logging in", usages=["digital signature"]),
    _spec("a second more than a day", expirationSeconds=86_401),
    _spec("a year", expirationSeconds=31_536_000),
    _spec("the longest life there is", expirationSeconds=2_147_483_647),
    _spec("the signer of kubelets", signerName="kubernetes.io/kube-apiserver-client-kubelet"),
    _spec("the signer of servers", signerName="kubernetes.io/kubelet-serving"),
    _spec("a signer nobody knows", signerName="example.com/agent"),
    Hostile(
        "another cluster's agent from Kubernetes' signer",
        lambda: signing_request(
            pem(names=("system:karmada:agent:east",)), signerName=CLIENT_SIGNER
        ),
    ),
    # Keys and bytes.
    _key("a weak RSA key", lambda: rsa.generate_private_key(65537, 1024)),
    _key("a curve we do not take", lambda: ec.generate_private_key(ec.SECP256K1())),
    _key("a small curve", lambda: ec.generate_private_key(ec.SECP192R1())),
    _key("a DSA key", lambda: dsa.generate_private_key(1024)),
    Hostile("a signature that is not the key's", _damaged),
    Hostile("no request at all", lambda: signing_request(b"")),
    Hostile("a request cut short", lambda: signing_request(pem()[:200])),
    Hostile(
        "something else in its place",
        lambda: signing_request(pem().replace(b"CERTIFICATE REQUEST", b"CERTIFICATE")),
    ),
    # Who asks.
    _made_by("the agent's name without its group", WEST),
    _made_by("the agents' group without a name", "eve", AGENTS),
    _made_by("somebody who is nobody's agent", "eve"),
    _made_by("another cluster's agent asks for west", "system:karmada:agent:east", AGENTS),
    _made_by("Karmada's installer asks", "system:karmada:agent:rbac-generator", AGENTS),
    _made_by("a token that is not there", "system:bootstrap:ghost1", "system:bootstrappers"),
    _made_by("a token of no cluster", "system:bootstrap:plain1", "system:bootstrappers"),
    _made_by("a token of another cluster", "system:bootstrap:easttk", "system:bootstrappers"),
    _made_by("a token that has expired", "system:bootstrap:oldtok", "system:bootstrappers"),
    _made_by("a token that was used before", "system:bootstrap:usedtk", "system:bootstrappers"),
    Hostile(
        "an agent asks for another cluster",
        lambda: signing_request(pem(names=("system:karmada:agent:east",))),
        AGENT,
    ),
    Hostile(
        "an agent asks for more groups",
        lambda: signing_request(pem(groups=(AGENTS, "system:masters"))),
        AGENT,
    ),
    Hostile("an agent asks for a year", lambda: agent_request(expirationSeconds=31_536_000), AGENT),
    Hostile(
        "an agent asks for a host name",
        lambda: signing_request(
            pem(extensions=(x509.SubjectAlternativeName([x509.DNSName("hub")]),))
        ),
        AGENT,
    ),
)
