"""The HTTP surface that hub and gateway share.

A request meets, in this order:

listener.py       sockets, TLS, draining
connections.py    who may connect: caps by address, tight ones for who is not known yet
limits.py         how much one client may ask, and how long it may take
protocol.py       one connection: a request, its handler, its answer, and again
request_reader.py   bytes to requests; whatever is ambiguous is refused
response_writer.py  answers to bytes: backpressure, streams, connections handed over whole
requests.py, messages.py  a request and an answer as handlers see them
request_info.py   what is asked, from method and URL alone
context.py, middleware/  the chain: who asks, and whether they may
users.py          users, whom a certificate names, who a user of the hub is at a member
bodies.py, documents.py  what clients send
negotiation.py, responses.py  the answer
relays.py         or another cluster's answer, passed on as it is; shells, as bytes
stream_endings.py, spdy_frames.py  that a relayed command ends with its status, or an error
foreign_answers.py  what of such an answer reaches the client, and what never does
"""
