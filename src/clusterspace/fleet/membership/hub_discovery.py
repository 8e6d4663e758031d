"""From an address and a fingerprint to a hub we trust: its `cluster-info`, checked by the pin.

Whoever registers knows nothing of the hub but what an administrator handed over. The first answer
is believed by nobody: it names an authority, and only one with the pinned public key counts. The
second is asked for over a connection that this authority vouches for, and must be the same.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from clusterspace.client.kubeconfig import parse_kubeconfig
from clusterspace.client.places import Place
from clusterspace.client.settings import ConnectionSettings, Identity, Pem, Trust
from clusterspace.errors import CannotJoin, UnusableKubeconfig
from clusterspace.fleet.membership.member_access import Open
from clusterspace.fleet.membership.names import CONFIG_MAPS
from clusterspace.kube.objects import Object, find_at

CLUSTER_INFO: Final = Place(CONFIG_MAPS, "kube-public", "cluster-info")

_ALGORITHM: Final = "sha256:"
_PIN: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NO_IDENTITY: Final = Identity()


@dataclass(frozen=True, slots=True)
class FoundHub:
    """A hub that proved to be the one that was meant."""

    server: str
    authority: bytes

    def settings(self, identity: Identity = _NO_IDENTITY) -> ConnectionSettings:
        """Return how to reach it, as somebody."""
        return ConnectionSettings("hub", self.server, Trust(Pem(self.authority)), identity)


def pin_of(certificate: x509.Certificate) -> str:
    """Return the fingerprint of a certificate's public key, as kubeadm writes it."""
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _ALGORITHM + hashlib.sha256(key).hexdigest()


def pins_of(authority: bytes) -> tuple[str, ...]:
    """Return the fingerprint of every certificate of an authority."""
    return tuple(pin_of(each) for each in _certificates(authority, "certificate-authority"))


def server_of(address: str) -> str:
    """Return the URL of a hub from `host:port` or a URL."""
    return (address if "://" in address else f"https://{address}").rstrip("/")


def pinned_authority(told: str, pin: str) -> bytes:
    """Return the certificates with the pinned key that a kubeconfig names; none when it does not.

    Certificates beside them are not trusted: the pin does not speak for them.
    """
    clusters = parse_kubeconfig(told.encode(), place="cluster-info").clusters.values()
    bundles = [each.pem("certificate-authority").data for each in clusters]
    read = [each for held in bundles for each in _certificates(held, "cluster-info")]
    pinned = [each for each in read if pin_of(each) == pin]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in pinned)


def _certificates(bundle: bytes, place: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError as error:
        why = "the authority holds no certificates that can be read"
        raise UnusableKubeconfig(why, place=place) from error


async def find_hub(cluster_name: str, address: str, pin: str, open_client: Open) -> FoundHub:
    """Return the hub at an address; CannotJoin when it is not the one the pin stands for."""
    if _PIN.fullmatch(pin) is None:
        why = "--discovery-token-ca-cert-hash must be sha256: and 64 hexadecimal digits"
        raise CannotJoin(cluster_name, why)
    server = server_of(address)
    if not server.startswith("https://"):
        raise CannotJoin(cluster_name, f"{server} is not reached over TLS, and must be")
    unproven = ConnectionSettings("hub", server, Trust(skips_verification=True))
    told = await _told(unproven, open_client)
    found = FoundHub(server, pinned_authority(told, pin))
    if not found.authority:
        why = f"the hub at {server} has another authority than {pin}: is it the right hub?"
        raise CannotJoin(cluster_name, why)
    if await _told(found.settings(), open_client) != told:
        raise CannotJoin(cluster_name, f"somebody between us and {server} changes its answers")
    return found


async def _told(settings: ConnectionSettings, open_client: Open) -> str:
    async with open_client(settings) as anonymous:
        info: Object = await anonymous.get(CLUSTER_INFO)
    return str(find_at(info, "data", "kubeconfig") or "")
