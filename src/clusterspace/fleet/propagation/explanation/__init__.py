"""Why one object is where it is, for people: followed from the hub to its clusters.

evidence.py       all that was made of one object, read from the hub
notes.py          what is told of it, as values
policy_notes.py   which policy it follows, and why the others lost
cluster_notes.py  where it is, where it is not, and what each cluster says
explain.py        all of it, with one sentence that sums it up

It only reads, and decides by the functions the controllers use: what it tells is what they do.
"""
