"""What operators see: logs, metrics, request ids.

metrics.py        every metric of servers, queues and controllers: name, labels, buckets
fleet_metrics.py  those of member clusters, by Karmada's names; only controllers have them
logs.py           JSON or console lines, with the fields of the context and without secrets
redaction.py      secrets taken out of fields and texts
request_ids.py    the name of a request, carried along through every line and hop
"""
