"""The HTTP surface that hub and gateway share.

A request meets, in this order:

listener.py        sockets, TLS, draining
connections.py     who may connect: Limits, caps by address, tight ones for who is not known yet
protocol.py        one connection: a request, its handler, its answer, and again; backpressure
request_reader.py  bytes to requests; whatever is ambiguous is refused
messages.py        Request, Response, Stream, Hijacked: what handlers see and return
websocket_streams.py  watches and logs as messages, for browsers; tokens among protocols
request_info.py    what is asked, from method and URL alone; in which form, from Accept
context.py         RequestContext: one request on its way, and what every answer to it has
chain.py           the steps around it: outcomes, deadlines, how many at once, rechecks
fairness/          whose request is served next: API priority and fairness
audit_policy.py    kube-apiserver's audit policy: read, and which rule a request has
audit_events.py    the step that writes events by such a policy
guards.py          the steps that say who asks and whether they may: authenticate, audit, authorize
users.py           users, whom a certificate or a header names, who a user of the hub is at a member
revocations.py     credentials that count no longer: the list of them, which hub and gateway read
bodies.py          what clients send
responses.py       the answer: our own, or what of another server's may go back
relays.py          another cluster's answer, passed on as it is; shells, as bytes
agent_tunnels.py   the tunnels of Pull members' agents: accepted here, streams opened from here
stream_endings.py, spdy_frames.py  that a relayed command ends with its status, or an error
"""
