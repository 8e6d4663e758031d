"""Every cluster: watches, of all that are there now and of those that join.

wishes.py   what a client asks for
ways.py     how one cluster is listed and watched on its behalf
feeds.py    what one cluster tells into the client's stream, without end
opening.py  where each cluster begins, and who is missing
watch.py    the stream of one client, from its first event to its end
"""
