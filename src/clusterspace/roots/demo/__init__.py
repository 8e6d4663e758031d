"""The sample shop: an application to propagate, and one that already runs.

placing.py   puts both where they belong
shop.yaml    the shop on the hub: two Deployments, a Service, a policy and an override
legacy.yaml  what runs on the first member already, and waits to be promoted
"""
