"""Talking to any Kubernetes API, hub or member: one client, one connection set per cluster.

Who and where:
    settings.py    server, trust, AuthInfo; tokens, certificates and plug-ins, renewed in time
    kubeconfig.py  kubeconfig files, or a pod's own files, to connection settings
    endpoints.py   where a member may be, and the addresses that are connected to

One request and its answer:
    requests.py    ResourcePath, ApiRequest, Answer; answers read within bounds, or their errors
    connection.py  pools, retries, one connection set per cluster and one for each of many
    webhooks.py    webhooks of others, at addresses that are judged when connecting
    issuers.py     OpenID Connect issuers: what they say of themselves, and tokens for codes
    upgrades.py    exec, attach, port-forward: a byte stream over a connection of its own

Objects, and collections over time:
    resources.py   get, list, create, update, patch, apply, delete; objects and pages as bytes
    discovery.py   which resources a cluster serves, cached with its expiry
    watch.py       one watch to its end; the Reflector: list, watch, resume, list again

It never follows a redirect, never writes blindly, never takes an answer it cannot read for an
empty one, and every error it raises names the cluster.
"""
