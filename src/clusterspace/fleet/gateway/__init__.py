"""Flow 1: one request, many clusters: route, target, fan out, merge, respond.

    request ──> Route ──> Targets ──> Replies ──> one answer ──> response

What a request means:
    routes.py    a URL, read once, to a Route: one cluster, all, or one that must be looked for;
                 `NAME.clusterspace.CLUSTER`, and queries in the words of one cluster
    virtual_labels.py  labels that objects have by their cluster, in selectors and in Tables
    callers.py   who asks, which clusters the hub lets them reach, and where their command is
    rights.py    whose credentials the hub has revoked, and when rights there have changed

The clusters:
    clusters.py  which there are, kept fresh from the hub; which are in trouble, and for whom
    registries.py  which clusters ResourceRegistries select for a kind
    object_texts.py  texts of objects in blocks, and lists of them by what their fields say
    object_cache.py  what objects of members said when they were last read, and who was told what
    warm_files.py  those objects in files, for the next start
    last_lists.py  what each caller was last shown of each member, for when it is away
    fanout.py    FleetContext, one request; whom to ask, all at once; the merged answer to HTTP

The answer:
    renaming.py  which fields of an answer hold names, and their edits
    inbound.py   bodies in the words of the cluster they go to
    merge/       many replies to one answer
    shared_watches.py  one watch of a cluster for all clients that would ask for the same one
    streams.py   streams of events on the wire: a client's, written and cut; a cluster's, read
    answers/     a route to its answer: the steps above, put together for each reach
    app.py       a request to its route, its route to its answer

It never reports as missing what it could not ask for, never tells a cluster how it knows a user,
and shows of a cluster what it has answered now, or named now in a state that is known. What it said
before stands in for its word only while it is away, to who was told it, and with its age.
"""
