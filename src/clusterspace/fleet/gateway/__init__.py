"""Flow 1: one request, many clusters: route, target, fan out, merge, respond.

    request ──> Route ──> Targets ──> Replies ──> one answer ──> response

The values, and what a request means:
    flow.py       Route, Naming, Reply: the values handed from step to step
    names.py      `NAME.clusterspace.CLUSTER`: put together, taken apart; the order of clusters
    routes.py     request to Route: one cluster, every cluster, or one that must be looked for
    sessions.py   which cluster a command is at, so that what it asks next stays there
    identity.py   who asks, and which clusters the hub lets them reach

The clusters:
    troubles.py   which are in trouble, since when, and for how long anybody waits for them
    directory.py  what is known of each, kept fresh from the hub
    targets.py    who is asked, who is skipped, and why
    fanout.py     all asked at once, each with a deadline of its own

The answer:
    renaming/     bodies and queries in the words of the other side; which fields hold names
    merge/        many replies to one answer
    watching.py   streams of events on the wire: a client's, written and cut; a cluster's, read
    respond.py    the merged answer to HTTP
    answers/      a route to its answer: the steps above, put together for each reach
    app.py        a call to its route, its route to its answer

It never reports as missing what it could not ask for, never tells a cluster how it knows a user,
and keeps no object: what a cluster does not answer now, it does not show.
"""
