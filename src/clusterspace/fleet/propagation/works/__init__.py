"""Binding to one Work per cluster, with its overrides and stamps; and the removal of stale ones.

    binding, template, overrides ──rendering──> wanted ─┐
                                                        ├─plans──> changes ──writing──> Works
                                     Works present ─────┘

    rendering.py        template, binding and cluster to the Work that cluster is to have
    plans.py            the Works wanted and the Works present, to what has to be written
    known_works.py      the Works present: the cache, and our own writes it has not seen yet
    writing.py          writing and removing Works, one at a time
    revisions.py        states of objects as placements wrote them down
    sources.py          the caches that say what is wanted
    triggers.py         whose Works and statuses have to be looked at, because something changed
    binding_works.py    keeps the Works of bindings
    namespace_works.py  keeps the Works of namespaces, which are on every cluster

It promises never to remove a Work because something could not be seen: a live binding must say
that it does not want the cluster, or that it is itself being deleted.
"""
