"""Kubernetes vocabulary, pure: what objects, names, selectors, patches and schemas mean.

Everything here is a function of its arguments: no clock, no network, no file but tables of facts.
Objects are plain dictionaries and are never edited in place; a result shares with its inputs
whatever did not change. Input that makes no sense raises an error of `clusterspace.errors` that
names the place, in Kubernetes' own words where clients match on them.

Read in this order; each module needs only those above it, and its own sub-package:

objects.py              plain-dict objects: read metadata, edit copy-on-write
resources.py            GroupVersionKind, GroupVersionResource, ResourceInfo
names.py                rules for names, label keys and label values; generateName
causes.py               the causes of a refusal: `spec.containers[0].image`, its value, the reason
plain_text.py           text of somebody else's server, made safe to print on a terminal
statuses.py             the v1 Status: our errors to bodies, bodies to errors
configuration_files.py  operators' files in Kubernetes' form: read strictly, refused with the place
times.py                RFC 3339 times, durations as Go writes them, ages as kubectl shows them
schedules.py            cron schedules: when something is due
quantities.py           `500m`, `1.5Gi`: exact amounts with one canonical text
conditions.py           status conditions: find, set, compare
autoscaling.py          how many replicas a load asks for, and how fast they may change
selectors.py            label and field selectors: parse once, match many; tolerations of taints
tables.py               Table and PartialObjectMetadata, for `kubectl get`
discovery_documents.py  APIGroupDiscoveryList and the legacy discovery documents
shapes.py               how much there may be in one object, counted while it is read
json_errors.py          what is wrong with a JSON text or value, in the words clients know
json_paths.py           JSONPath as printer columns and scale paths use it
protobuf/               Kubernetes protobuf bodies to and from objects
schemas/                structural schemas: defaulting, pruning, validation
cel/                    the Common Expression Language of `x-kubernetes-validations`
json_patches.py         JSON patch with its pointers, JSON merge patch
strategic_merge.py      strategic merge patch: lists are merged as the schema says
managed_fields/         who owns which fields: server-side apply
"""
