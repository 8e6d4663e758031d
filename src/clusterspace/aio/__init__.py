"""asyncio pieces that have never heard of Kubernetes.

clocks.py        the Clock protocol, the system clock, an alarm, delays; how late the loop is; waits
                 that are told without filling the log
tasks.py         supervised groups for tasks that must never end quietly
queues.py        a work queue: de-duplicating, delayed, rate-limited, one worker per key
lanes.py         long steps beside the event loop, in turns by whom they are for
slices.py        long work on the event loop, one slice in each turn, in turns by whom it is for
event_loop.py    uvloop, with TLS that loses nothing when the peer closes
byte_streams.py  bytes over a socket or TLS: what arrived is read, a cut is no end
websockets.py    WebSocket frames around a stream of bytes
multiplexer.py   many streams over one connection, each at its own pace, as asyncio transports
siblings.py      processes that serve one address: what one is told, all know
memory.py        memory that was freed, given back to the system after a burst
"""
