"""The HTTP surface that hub and gateway share.

A request meets, in this order: listener.py (sockets, TLS, limits), request_info.py (what is
asked), middleware/ (who asks and whether they may), a handler, and negotiation.py and responses.py
(the answer). bodies.py reads what clients send.
"""
