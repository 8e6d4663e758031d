"""The machinery every controller stands on.

    informer ──changes──> Watch ──requests──> queue ──> workers ──> Reconciler ──> Done, or again

    caches.py       objects as bytes under their keys, with indexes
    informers.py    list, then watch, into a cache; our own latest writes on top of one
    hub_caches.py   HubCaches: the informers that all controllers of a process share
    reconcile.py    Reconciler, Watch, Request, Result: what a controller is made of
    controller.py   Controller: one reconciler with its queue, workers, retries and metrics
    manager.py      ControllerManager: all reconcilers of a process, with informers and events
    commit.py       before and after to the smallest patch; spec or status, never both
    finalizers.py   holding an object until its cleanup is done
    events.py       Kubernetes Events, aggregated and rate-limited
    leases.py       leader election
    background.py   tasks that run for as long as their process: kept, started again, reported

It promises that a cache forgets an object only when the object is gone, that one key is worked on
by one worker at a time, and that killing it at any moment loses no work.
"""
