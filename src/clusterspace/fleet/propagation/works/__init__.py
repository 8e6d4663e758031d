"""Binding to one Work per cluster, with its overrides and stamps; and the removal of stale ones.

    binding, template, overrides ──> desired ─┐
                                              ├──> changes ──> Works
                         existing Works ──────┘

    controller.py   BindingWorks: keeps the Works of bindings
    exclusive.py    whether an old copy is proven to have stopped, before a new one starts
    rendering.py    template, binding and cluster to a Work; desired and existing to writes

It promises never to remove a Work because something could not be seen: a live binding must say
that it does not name the cluster, or that it is itself being deleted.
"""
