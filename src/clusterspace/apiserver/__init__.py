"""A Kubernetes API server: request to rules to store.

app.py            the route table, readable top to bottom
state.py          what verbs work on: store, catalog, feeds, sources of time and chance
catalog.py        what is served: built-in resources and custom ones
scopes.py         paths that a resource of its scope has, and no others
options.py        query parameters and DeleteOptions, read and checked once
verbs/            what a request may ask of a resource
selection.py, continues.py, versions.py  which objects, which page, at which moment
rules.py          what happens to an object of a kind between body and store
builtin_*.py      the rules of built-in kinds; custom_*.py those of custom ones
definition_rules.py, served_definitions.py  the rules of definitions, and how each is served
ownership.py      who owns which fields after a write
admission/        the hub's own say in what is written; admissions.py, what it is shown
writing.py        new and changed objects into the store; removal.py their end
forms.py, keys.py the stored form of objects, and answers spliced from it
feeds.py          one subscription to the store per resource, many watchers
tables.py         rows and columns for `kubectl get`
discovery.py, openapi.py, openapi_documents/, openapi_v2.py  what clients learn before they ask
certificates.py, authenticators.py, identity/  who is asking
access/           who may do what
housekeeping/     what happens later: namespaces end, owners' children go, events expire

http/             sockets, requests, the chain of steps, answers; the gateway stands on it too
store/            the revision log: memory, SQLite

It never answers a write before the store has it on disk, and never decodes what nobody reads.
"""
