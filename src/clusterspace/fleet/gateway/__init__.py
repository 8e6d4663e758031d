"""Flow 1: one request, many clusters: route, target, fan out, merge, respond.

    request ──> Route ──> Targets ──> Replies ──> one answer ──> response

What a request means:
    names.py      `NAME.clusterspace.CLUSTER`: put together, taken apart; Naming, Subject
    routes.py     a URL, read once, to a Route: one cluster, all, or one that must be looked for
    sessions.py   which cluster a command is at, so that what it asks next stays there
    identity.py   who asks, and which clusters the hub lets them reach

The clusters:
    directory.py  what is known of each, kept fresh from the hub
    troubles.py   which are in trouble, for whom, since when, and for how long anybody waits
    context.py    FleetContext: one request, and what it takes to ask a cluster in its name
    fanout.py     whom to ask, all at once, each with a deadline; what to make of the replies

The answer:
    renaming/     bodies and queries in the words of the other side; which fields hold names
    merge/        many replies to one answer
    streams.py    streams of events on the wire: a client's, written and cut; a cluster's, read
    responses.py  the merged answer to HTTP
    answers/      a route to its answer: the steps above, put together for each reach
    app.py        a request to its route, its route to its answer

It never reports as missing what it could not ask for, never tells a cluster how it knows a user,
and keeps no object: what a cluster does not answer now, it does not show.
"""
