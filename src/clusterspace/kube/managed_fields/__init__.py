"""Who owns which fields of an object: `metadata.managedFields` and server-side apply.

    create, update, patch    track_update(live, new, write)              whoever changes a field
                                                                         owns it
    apply                    apply(live, applied, write, force=...)      whoever applies a field
                                                                         owns it, if nobody objects

Both take plain objects and give back a new one with its managedFields; `write` says who writes,
when, through which subresource, and the schema of the kind. Nothing here fills in defaults:
run defaulting before `track_update` (a creator owns defaulted fields) and after `apply` (an
applier owns only what it said), and fill in what the server itself decides after either.

Reading order:

    field_sets      FieldSet: a set of paths, as `fieldsV1` writes it, and the elements of a path
    typed_values    a value and its schema: which fields it has, what changed, how two merge
    managers        the entries of managedFields; Write: who, when, how; create, update and patch
    apply           the decision for apply: does it fit, merge, give up, conflict

It never reads a clock, never changes what it is given, and answers nonsense with an ApiError.
"""
