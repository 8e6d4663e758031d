"""A route to its answer: one module for each way a request reaches clusters.

asking.py     what all of them work with: the request, its route, the way to each cluster
follow_ups.py the second request of a command, kept in the cluster of the first
one.py        one cluster, named by the request
watches.py    one cluster's events, with the names the client used
pages.py      which items of which clusters make a page
every.py      every cluster: lists
reviews.py    may I: asked of every cluster
every_watch/  every cluster: watches
search.py     one cluster that the request does not name
surveys.py    what each cluster serves and which release it runs, remembered
documents.py  what is about the fleet itself: discovery, schemas, version, health
"""
