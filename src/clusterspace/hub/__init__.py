"""The Kubernetes-compatible API server: request to rules to store.

app.py            the route table, readable top to bottom
catalog.py        what is served: built-in resources and custom ones
options.py        query parameters and DeleteOptions, read and checked once
rules.py          what happens to an object of a kind between body and store
builtin_*.py      the rules of built-in kinds; custom_*.py those of custom ones
writing.py        new and changed objects into the store; removal.py their end
ownership.py      who owns which fields after a write
verbs/            what a request may ask of a resource
forms.py, keys.py the stored form of objects, and answers spliced from it
feeds.py          one subscription to the store per resource, many watchers
tables.py         rows and columns for `kubectl get`
discovery.py, openapi.py, openapi_documents/  what clients learn before they ask
custom_resources.py  CustomResourceDefinitions become live routes
served_definitions.py  how each version of a definition is served
admission/        the hub's own say in what is written
housekeeping/     what happens later: namespaces end, owners' children go, events expire

It never answers a write before the store has it on disk, and never decodes what nobody reads.
"""
