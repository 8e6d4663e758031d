"""Talking to any Kubernetes API, hub or member: one client, one connection set per cluster.

Who and where:
    settings.py       what a connection is made of: server, trust, AuthInfo
    kubeconfig.py     kubeconfig files, or a pod's own files, to connection settings
    credentials.py    tokens, certificates, exec plug-ins: renewed before they expire
    endpoints.py      where a member may be, and the addresses that are connected to

One request and its answer:
    requests.py       ApiRequest, Answer, ResourcePath: the values handed to a connection and back
    answer_memory.py  how much all answers together may take, and who pays when it is too much
    answers.py        an answer to bytes within a limit, or to the error it tells of
    connection.py     pools, retries, one connection set per cluster and one for each of many
    upgrades.py       exec, attach, port-forward: a byte stream over a connection of its own

Objects, and collections over time:
    raw_objects.py    objects and pages of lists as bytes, with the few words everybody needs
    resources.py      get, list, create, update, patch, apply, delete for any resource
    discovery.py      which resources a cluster serves, cached with its expiry
    watch.py          one watch: chunks to lines to events, until the server ends it
    reflector.py      list, watch, resume, list again: the changes of a collection, without end

It never follows a redirect, never writes blindly, never takes an answer it cannot read for an
empty one, and every error it raises names the cluster.
"""
