"""Logs, metrics and request ids, for operators.

metrics.py        metrics of servers, queues and controllers: name, labels, buckets; the registry
flow_metrics.py   metrics of API priority and fairness, by Kubernetes' names
fleet_metrics.py  metrics of member clusters, by Karmada's names; only controllers have them
logs.py           JSON or console lines: request ids carried through every hop, secrets taken out

A new metric is declared in one of these modules. `make generate` then writes it into
docs/reference/metrics.md, and the test tests.component.test_every_metric_moves must see it move.
"""
