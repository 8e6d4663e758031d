"""Facts of Kubernetes' own kinds: pure, and data wherever they can be data.

resources.py         every built-in resource: group, versions, plural, scope, verbs, subresources
resource_model.py    what a row of that table says
schemas.py, data/    schema facts, reduced from Kubernetes' published schemas
wire_types.py        the types of fields as they are written, and their normal values
normal_form.py       the JSON that comes back for the JSON that was sent
conversions.py       kinds that are served in two shapes and stored in one
defaults/            what users may leave out
strategies.py        what creation and update make of an object besides
validation/          what is wrong with an object, in Kubernetes' words
definitions.py       CustomResourceDefinitions: read, and what becomes of them
printers/            the columns of `kubectl get`
pods.py              what the containers of a pod request and may use together; its token's volume
quota_usage.py       what an object takes up of a ResourceQuota, and what it must state
pod_security.py      the Pod Security Standards, by level and version
flow_control.py      the FlowSchemas and priority levels that every API server has
"""
