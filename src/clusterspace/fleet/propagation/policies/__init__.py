"""PropagationPolicies of both scopes.

controller.py   PolicyLifecycle: IDs and finalizers, until nothing follows a policy
selection.py    which policy claims a template, when several could
"""
