"""Exec, attach and port-forward on the wire: text of the simulation's own, never the host's.

    upgrade ──upgrades──> WebSocket channels ─┐
                          SPDY streams ───────┼─> Terminal ──> a shell, or a log that grows
                          SPDY in WebSocket ──┴─> BytePipe ──> an echo, or an HTTP answer

upgrades.py        which protocol was asked for, the 101 that grants it, and the bytes after it;
                   WebSockets: RFC 6455, the server's half
spdy.py            SPDY/3.1, the server's half: frames, compressed headers, streams
remote_commands.py one exec or attach from its upgrade to its end
port_forwards.py   one port-forward from its upgrade to its end
"""
