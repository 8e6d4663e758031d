"""Who owns which fields of an object: `metadata.managedFields` and server-side apply.

    create, update, patch    track_update(live, new, write)              whoever changes a field
                                                                         owns it
    apply                    apply(live, applied, write, force=...)      whoever applies a field
                                                                         owns it, if nobody objects

Both take plain objects and give back a new one with its managedFields; `write` says who writes,
when, through which subresource, and what is known of the kind. Nothing here fills in defaults:
run defaulting before `track_update` (a creator owns defaulted fields) and after `apply` (an
applier owns only what it said), and fill in what the server itself decides after either.

Reading order:

    path_elements   one step of a path, as `fieldsV1` writes it
    field_sets      FieldSet: a set of paths, as `fieldsV1` writes it
    typed_values    what a schema says of a value: owned whole, or in pieces that have names
    comparison      two states of an object to the fields that changed
    extraction      a configuration to the fields it speaks of
    merging         a configuration into a live object
    removal         what an applier gave up, out of the object
    managers        the entries of managedFields: read, write, sort, cap
    blanks          what a built-in object looks like before anybody has written to it
    writes          Write: who, when, through which door
    update          the decision for create, update and patch
    checking        does a configuration fit its schema
    conflicts       whose fields an apply would change, and how to say so
    last_applied    what kubectl owned before there were owners
    apply           the decision for apply

It never reads a clock, never changes what it is given, and answers nonsense with an ApiError.
"""
