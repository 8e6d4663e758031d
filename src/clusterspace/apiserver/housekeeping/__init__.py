"""What happens later, on the hub's own account.

namespaces.py  a namespace that was deleted ends: its content first, itself last
garbage.py     objects whose owners are gone go too, after a live look at every owner
expiry.py      what is kept for a while only: events, for an hour

Nothing here deletes because a list was empty or a kind unknown: every deletion follows a live
read of the very object, and names the revision it read.
"""
