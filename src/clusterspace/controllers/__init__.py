"""The machinery every controller stands on.

    informer ──changes──> Watch ──requests──> queue ──> workers ──> Reconciler ──> Done, or again

    informers.py    Informer, HubCaches: list, then watch, into caches that controllers share
    controller.py   Reconciler, Watch, Request, Result; Controller and ControllerManager run them
    commit.py       before and after to the smallest patch, spec or status; finalizers
    events.py       Kubernetes Events, aggregated and rate-limited
    leases.py       leader election

It promises that a cache forgets an object only when the object is gone, that one key is worked on
by one worker at a time, and that killing it at any moment loses no work.
"""
