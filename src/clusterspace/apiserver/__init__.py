"""A Kubernetes API server: request to rules to store.

app.py            the route table, readable top to bottom
flagz.py          /flagz: what the server was started with, for reviews
health.py         /healthz, /livez, /readyz; the components of the control plane
state.py          what verbs work on: store, catalog, feeds, admission, sources of time and chance
catalog.py        what is served: a resource with its rules, form and printer
options.py        query parameters and DeleteOptions, read and checked once; what selectors select
verbs/            what a request may ask of a resource
writing.py        new, changed and deleted objects into the store, for verbs and our controllers;
                  writes of a leader that leads no longer, refused as they are stored
admission/        the hub's own say in what is written
forms.py          the stored form of objects, their keys, and answers spliced from it; or encoded
                  once, as protobuf
feeds.py          one subscription to the store per resource, many watchers
builtin_resources.py      built-in resources and the rules of their kinds
conversion.py     objects of custom resources between versions, by a webhook
custom_resources.py       the resources of a CustomResourceDefinition and their rules
definition_controller.py  CustomResourceDefinitions become live routes, and end
discovery.py, openapi.py, openapi_documents/  what clients learn before they ask
identity/         who is asking: certificates, tokens, and how they come to be
access/           who may do what
hub_leases.py     which of several servers on one store does what one is enough for
housekeeping.py   what happens later: namespaces end, owners' children go, events expire
flow_control.py   FlowSchemas and priority levels: the default ones kept, all of them obeyed
protection.py     volumes and claims that are deleted go once nobody uses them
quota_controller.py       how much of ResourceQuotas is used, counted from what is stored
kubernetes_hub/   our rules on a kube-apiserver that is the hub
kubernetes_service.py     `default/kubernetes`: where this server is, for programs in the cluster

http/             sockets, requests, the chain of steps, answers; the gateway stands on it too
store/            the revision log: memory, SQLite, etcd

It never answers a write before the store has it on disk, and never decodes what nobody reads.
"""
