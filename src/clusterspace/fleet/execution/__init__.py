"""The member end of flow 2: a Work becomes objects on one member, and what they are like goes back.

    Work ──> may we? ──> apply ──> observe ──> report          a Work goes ──> prune, or hand over

takeover.py     may we touch what is already there? conflict resolution and ownership
ownership.py    whose the fields of a member object are, by what the member keeps of it
apply.py        manifest to member object: create, adopt, update; retained fields stay the member's
observe.py      what a member object is like: status, health, what is different and by whom
report.py       Work status: what became of its manifests
telling.py      Events: trouble, its end, what was put back
pace.py         how fast drift is repaired
bystanders.py   objects in our way, followed for as long as they are
sightings.py    what is seen of one member's objects, and which Work that concerns
placing.py      one manifest put on the member: decided, paced, applied, told
budget.py       how many objects may be deleted before a person has to look
guard.py        that budget, kept for one member; pausing
prune.py        delete what a Work no longer asks for: recorded, live-read, by UID
withdrawing.py  the end of a Work: what it held is deleted, or handed over
works.py        one cluster's Works, queued and carried out
fleet.py        an executor for every Push cluster
promotion.py    an object of a member made a template: what is written, what changes

It holds one member's credentials at a time. It never touches what is not ours unless told to
overwrite, never deletes what it has not just looked at, and never because it could not see.
"""
