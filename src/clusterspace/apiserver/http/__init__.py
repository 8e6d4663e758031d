"""The HTTP surface that hub and gateway share.

A request meets, in this order:

listener.py, tls.py  sockets, handshakes, draining; site.py, what its connections share
arrivals.py       who may connect: caps by address, tight ones for who is not known yet
limits.py         how much one client may ask, and how long it may take
protocol.py       one connection: inlet.py and outlet.py are its two directions
parsing.py        bytes to requests; whatever is ambiguous is refused
requests.py, streams.py, messages.py  a request, a long answer, a short one
request_info.py   what is asked, from method and URL alone
context.py, users.py, middleware/  the chain: who asks, and whether they may
certificate_logins.py  whom a client certificate names
bodies.py, large_json.py, yaml_documents.py  what clients send
negotiation.py, responses.py  the answer
travelling_users.py  who a user of the hub is at a member
relays.py, tunnels.py  or another cluster's answer, passed on as it is
foreign_answers.py  what of such an answer reaches the client, and what never does
"""
