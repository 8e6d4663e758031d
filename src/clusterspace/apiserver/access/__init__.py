"""Who may do what on the hub: one record of attributes in, one decision out.

rbac.py           one rule of a role, and what it covers
grants.py         roles and bindings by who holds them
snapshot.py       the grants, kept current from the store
agents.py         what the agent of a member cluster reaches, and nothing else
parts.py          what controllers and gateway may do, where a role cannot say it
authorizer.py     agents, then administrators, then limits, then roles; no means no
coverage.py       whether rules that somebody holds cover others
escalation.py     nobody grants what they do not hold
guards.py         the plug-ins that stand between an authorized write and the store
reviews.py        clients ask what somebody may do
review_checks.py  what is wrong with such a question
default_roles.py  the roles and bindings that clients expect to find
installation.py   putting them there, and leaving users' additions alone
aggregation.py    roles made of other roles
audit_log.py      the file that tells who wrote what
build.py          all of it for one hub

A decision reads memory only. Nothing here trusts an object's text: what cannot be read grants
nothing.
"""
