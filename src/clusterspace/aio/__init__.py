"""asyncio pieces that have never heard of Kubernetes.

clocks.py     the Clock protocol, the system clock, an alarm; how late the loop is by its own fault
tasks.py      supervised groups for tasks that must never end quietly
queues.py     a work queue: de-duplicating, delayed, rate-limited, one worker per key
backoff.py    jittered delays as plain iterators of seconds
lanes.py      long steps beside the event loop, in turns by whom they are for
memory.py     memory that was freed, given back to the system after a burst
"""
