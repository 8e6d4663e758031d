"""Talking to any Kubernetes API, hub or member: one client, one connection set per cluster.

Who and where:
    settings.py      what a connection is made of: server, trust, identity
    kubeconfig.py    kubeconfig files, or a pod's own files, to connection settings
    exec_plugins.py  asking a program for credentials, as kubeconfigs may say
    credentials.py   tokens, certificates, plug-ins: re-read and renewed before they expire

One request and its answer:
    requests.py      ApiRequest and Answer: the values handed to a connection and back
    retries.py       whether to ask again, and when
    translation.py   transport failures and Status bodies into our errors, in one place
    answers.py       reading an answer: bit by bit, or whole and within a limit
    endpoints.py     where a member may be: the form of its address, networks that are refused
    addresses.py     a host to the addresses that are connected to: looked up once, and judged
    answer_memory.py how much all answers together may take, and who pays when it is too much
    pools.py         connections made with one set of certificates
    connection.py    one pooled, limited, TLS-verified HTTP connection set per cluster
    connections.py   one of those for each of many clusters
    upgrades.py      exec, attach, port-forward: a byte stream over a connection of its own

Objects:
    places.py        where an object or a collection is: Place, and its path
    raw_objects.py   objects as bytes, with the few words everybody needs
    pages.py         the bytes of a list to items that nobody has decoded yet
    writes.py        what a write says besides the object; blind writes are refused here
    resources.py     get, list, create, update, patch, apply, delete for any resource
    discovery.py     which resources a cluster serves, cached with its expiry

Collections over time:
    watch.py         one watch: chunks to lines to events, until the server ends it
    changes.py       what is new to somebody who knows a collection already
    confirming.py    making sure, before a list deletes anything, that the missing are gone
    following.py     list, watch, resume, list again: what a collection holds, without end

It never follows a redirect, never writes blindly, never takes an answer it cannot read for an
empty one, and every error it raises names the cluster.
"""
