"""Our own certificates, renewed before they expire, without a restart."""

from collections.abc import Callable, Sequence
from typing import Final

import structlog
from cryptography import x509

from clusterspace.aio.clocks import Clock
from clusterspace.errors import ClusterspaceError

_log = structlog.get_logger(__name__)

RENEWED_AT: Final = 0.8
"""The share of its life after which a certificate is renewed: there is time to notice a failure."""

LOOK_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = 60.0


def needs_renewal(certificate_pem: bytes, now: float) -> bool:
    """Whether most of a certificate's life is over."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    start = certificate.not_valid_before_utc.timestamp()
    end = certificate.not_valid_after_utc.timestamp()
    return now >= start + RENEWED_AT * (end - start)


async def renew_forever(
    clock: Clock, held: Callable[[], Sequence[bytes]], renew: Callable[[float], None]
) -> None:
    """Look at the held certificates now and then; when one is due, renew. Until cancelled.

    `renew` makes new ones, writes them where `held` reads them and puts them to use.
    """
    while True:
        now = clock.now()
        if any(needs_renewal(each, now) for each in held()):
            await _renew(clock, renew)
        await clock.sleep(LOOK_SECONDS)


async def _renew(clock: Clock, renew: Callable[[float], None]) -> None:
    """Renew, and try again for as long as it fails: a full disk must not end the hub's life."""
    while True:
        try:
            renew(clock.now())
        except (OSError, ClusterspaceError) as error:
            _log.error("certificates were not renewed", reason=str(error))
            await clock.sleep(RETRY_SECONDS)
            continue
        _log.info("certificates renewed")
        return
