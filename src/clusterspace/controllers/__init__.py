"""The machinery every controller stands on.

    source ──changes──> requests ──queue──> workers ──> reconcile ──> Done | RequeueAfter | error

    caches.py       objects as bytes under their keys, with indexes
    informers.py    list, then watch, into a cache; tells handlers what changed
    reconcile.py    Request, Done, RequeueAfter, Terminal: what a reconciler is asked and answers
    controller.py   source to queue to workers; retries, metrics, one id per attempt
    commit.py       before and after to the smallest patch; spec or status, never both
    finalizers.py   holding an object until its cleanup is done
    events.py       Kubernetes Events, aggregated and rate-limited
    leases.py       leader election
    background.py   tasks that run for as long as their process: kept, started again, reported

It promises that a cache forgets an object only when the object is gone, that one key is worked on
by one worker at a time, and that killing it at any moment loses no work.
"""
