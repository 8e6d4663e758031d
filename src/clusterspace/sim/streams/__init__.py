"""Exec, attach and port-forward on the wire: text of the simulation's own, never the host's.

    upgrade ──handshakes──> WebSocket channels ─┐
                            SPDY streams ───────┼─> Terminal ──> a shell, or a log that grows
                            SPDY in WebSocket ──┴─> Tunnel   ──> an echo, or an HTTP answer

byte_pipes.py      bytes both ways: a raw connection, or one inside WebSocket messages
websockets.py      RFC 6455, the server's half
spdy_frames.py     SPDY/3.1 frames and their compressed headers
spdy.py            SPDY/3.1 streams on one connection, the server's half
handshakes.py      which protocol was asked for, and the 101 that grants it
terminals.py       stdin, stdout, stderr and the exit code, whichever protocol carries them
remote_commands.py one exec or attach from its upgrade to its end
port_forwards.py   one port-forward from its upgrade to its end
"""
