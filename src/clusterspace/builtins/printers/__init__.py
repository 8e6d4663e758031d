"""The columns that `kubectl get` shows of built-in kinds and of Clusters, and how cells are read.

cells.py       the words printers are written in: Printer, columns, and cells many kinds share
core.py        the core group, and the members of the fleet; the hard columns are those of pods
workloads.py   apps, batch, autoscaling
networks.py    services, endpoints, ingresses, policies
volumes.py     volumes, claims, storage classes, CSI
access.py      kinds that administrators set up, and all that are left:
               RoleBindings, CertificateSigningRequests, PodDisruptionBudgets, Leases, webhooks,
               ValidatingAdmissionPolicies, APIServices, PriorityClasses, RuntimeClasses,
               FlowSchemas, PriorityLevelConfigurations, ResourceClaims, ResourceSlices
registry.py    which kind has which printer; custom kinds are printed as their definition says,
               except Clusters, which have a printer here

Cells are read from the stored form of an object: events as core/v1, autoscalers as v2. The time
comes in from outside; nothing here reads a clock.
"""
