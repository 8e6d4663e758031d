"""How much one client may ask of the server and how long it may take, each with its reason."""

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one server; the size of a body is each handler's own decision."""

    target_bytes: int = 64 * KIB
    """Request target, then 414. A resourceVersion of 500 clusters plus a long selector needs more
    than the usual 8 KiB."""

    header_bytes: int = 64 * KIB
    """All header lines of a request together, then 431. Tokens are 1 to 16 KiB and impersonated
    groups may be hundreds; kube-apiserver's 1 MiB is mostly an invitation."""

    header_count: int = 512
    """Header lines of a request, then 431. Each impersonated group is a line of its own."""

    body_ahead_bytes: int = 64 * KIB
    """Body bytes taken in before the handler asks for them; beyond, we stop reading the socket.
    Of a newcomer nothing is taken in: it has yet to show that it may send anything."""

    pipeline_bytes: int = 64 * KIB
    """Bytes of later requests kept, unparsed, while one is answered; beyond, we stop reading."""

    connections: int = 10_000
    """Open connections and handshakes together; beyond, a new one is closed as it comes. Every
    watch is a connection and costs about 41 KiB with TLS."""

    connections_per_address: int = 5_000
    """Of these, how many may come from one address (IPv6: one /64): whatever one place does, half
    of the server is left to the others. Behind a proxy everybody has the proxy's address."""

    newcomers: int = 500
    """Connections that have sent something and had no request authenticated yet; others wait for
    their room. Each may cost up to half a megabyte: this is all that strangers can take."""

    newcomers_per_address: int = 100
    """Of these, how many may come from one address. A login takes milliseconds, so an office, or a
    thousand agents, behind one NAT are through in the time that their handshakes take."""

    newcomer_seconds: float = 2.0
    """How long a newcomer keeps its room while others wait for it."""

    lingering_newcomers: int = 32
    """How many strangers at once are read out after a refusal: what they still send passes through
    half a megabyte of buffers each. The others get their answer, and their input is left alone."""

    handshake_seconds: float = 10.0
    """To the first byte, and again for the TLS handshake. A round trip around the world takes well
    under one second."""

    header_seconds: float = 32.0
    """From the first byte of a request (or from the connection's start, for its first) to the end
    of its headers, then 408. kube-apiserver's figure."""

    body_window_seconds: float = 10.0
    """How often the speed of an arriving body is looked at, then 408."""

    body_window_bytes: int = 10 * KIB
    """What must have arrived in each such window: 1 KiB/s. Only while the handler waits for it."""

    idle_seconds: float = 90.0
    """Between two requests of a connection. Go's clients drop theirs after 90 s as well."""

    write_stall_seconds: float = 30.0
    """Without one byte leaving a full write buffer, then the connection is cut."""

    linger_seconds: float = 1.0
    """How long input is read and dropped after a refusal. Closing at once would make the kernel
    send a reset, which can erase the answer before the client reads it."""

    tls_shutdown_seconds: float = 3.0
    """How long we wait for the peer's goodbye when closing TLS."""

    sweep_seconds: float = 1.0
    """How often deadlines are looked at, and so how late they may be noticed. One pass over all
    connections is cheaper than a timer for each request."""
