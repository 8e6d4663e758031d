"""Who may do what on the hub: one record of attributes in, one decision out.

authorizer.py     the decision: agents, then administrators, then limits, then roles; no means no
rbac.py           one rule of a role: what it allows, and whether rules somebody owns cover it
grants.py         roles and bindings by who holds them, kept current from the store
agents.py         what the agent of a member cluster reaches, and nothing else
components.py     what controllers and gateway may do, where a role cannot say it
escalation.py     nobody grants what they do not hold
guards.py         the plug-ins that stand between an authorized write and the store
reviews.py        clients ask what somebody may do
default_roles.py  the roles and bindings that clients expect to find, and putting them there
aggregation.py    roles made of other roles
audit_log.py      the file that tells who wrote what
build.py          all of it for one hub

A decision reads memory only. Nothing here trusts an object's text: what cannot be read grants
nothing.
"""
