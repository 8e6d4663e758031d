"""Logs, metrics and request ids, for operators.

metrics.py        metrics of servers, queues and controllers: name, labels, buckets; the registry
fleet_metrics.py  metrics of member clusters, by Karmada's names; only controllers have them
logs.py           JSON or console lines, with the fields of the context and without secrets
redaction.py      secrets taken out of fields and texts
request_ids.py    the name of a request, carried along through every line and hop

A new metric is declared in one of the two modules. `make generate` then writes it into
docs/reference/metrics.md, and the test tests.component.test_every_metric_moves must see it move.
"""
