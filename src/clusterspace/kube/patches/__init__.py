"""The three kinds of patch, as pure functions: an object and a patch in, a new object out.

json_patch.py   RFC 6902: a list of operations, each on one place
merge_patch.py  RFC 7386: an object with the fields that change, null for those that go
strategic.py    Kubernetes' own: like a merge patch, but lists are merged as the schema says

Nothing here edits what it is given: a result shares with its inputs whatever did not change.
"""
