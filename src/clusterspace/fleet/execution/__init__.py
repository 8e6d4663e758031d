"""The member end of flow 2: a Work becomes objects on one member, and their state goes back.

    Work ──> may we? ──> apply ──> report          a Work goes ──> prune, or hand over

controller.py        one cluster's Works, queued and carried out; one controller per Push cluster
takeover.py          may we touch what is there? what a manifest makes of it, and leaves to others
apply.py             one manifest put on the member: created, adopted, updated; drift, at a pace
member_informers.py  the member's objects followed, and which Work a change concerns
evidence.py          what ran under an object when it was taken over, noted and compared
report.py            Work status and Events: what became of the manifests
prune.py             what a Work no longer asks for: recorded, live-read, deleted by UID; its budget
provenance.py        whose an object of a member is, what differs from the hub, who wrote it
contents.py          what a namespace holds, and whose that is; namespaces that stay
exports.py           endpoints of Services that the member exports, read and followed
unschedulable.py     replicas that no node takes, counted for the scheduler
exclusive.py         copies that run by a lease: stopped when the hub is not heard
fleet_delivery.py    Works for KubeFleet's own agent, in its shape; its word, in ours
withdrawn.py         what was withdrawn, noted on the member; what came too late, removed
promotion.py         an object of a member made a template: what is written, what changes

It holds one member's credentials at a time. It never touches what is not ours unless told to
overwrite, never deletes what it has not just looked at, and never because it could not see.
"""
