"""Who may do what on the hub: one record of attributes in, one decision out.

authorizer.py     the decision: agents, then administrators, then limits, then roles; no means no
rbac.py           one rule of a role: what it allows, and whether rules somebody owns cover it
grants.py         roles and bindings by who holds them, kept current from the store
changes.py        hears of writes that may take rights away: open streams are asked about again
agents.py         what the agent of a member cluster reaches, and nothing else
karmada_agents.py what Karmada's own agent and `register` reach, where a hub accepts them
components.py     what controllers and gateway may do, where a role cannot say it
reviews.py        clients ask what somebody may do
default_roles.py  the roles and bindings that clients expect to find; roles made of other roles
audit_log.py      the file that tells who wrote what, and the thread that writes it
audit_chain.py    its lines: numbered and chained by hashes, and verified again

What the body of a write needs beyond the right its URL names is asked by rules in admission/.
A decision reads memory only. Nothing here trusts an object's text: what cannot be read grants
nothing.
"""
