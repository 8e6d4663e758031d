"""Binding to one Work per cluster, with its overrides and stamps; and the removal of stale ones.

    binding, template, overrides ──rendering──> desired ─┐
                                                         ├──> changes ──writing──> Works
                                    existing Works ──────┘

    controller.py   BindingWorks: keeps the Works of bindings
    revisions.py    the state of its template that a cluster is to have
    rendering.py    template, binding and cluster to a Work; desired and existing to changes
    writing.py      the Works there are, our own writes included; writing and removing them

It promises never to remove a Work because something could not be seen: a live binding must say
that it does not name the cluster, or that it is itself being deleted.
"""
