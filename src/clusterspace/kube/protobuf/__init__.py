"""Kubernetes protobuf bodies to and from the JSON objects everyone else works with.

    body -> envelopes -> messages (which fields?) -> decoding -> object
    object -> encoding -> envelopes -> body

Read in this order: `envelopes` (the four magic bytes and the type beside the object), `wire` (tags
and lengths), `scalars` and `values` (what a number or a time is on the wire), `messages` (the table
of fields, from `fields.txt`), `schema_choices`, then `decoding` and `encoding`.

**Which zeros are shown.** Go clients write every field that is not a pointer, set or not, so a
zero on the wire may mean "nobody said anything". The table knows how each field is declared and
the JSON is what a Go client would have sent as JSON: `tty: false` is left out, `replicas: 0` (a
pointer, so somebody chose it) stays, `containers[].name: ""` (always shown) stays, `resources: {}`
stays. A creation time that was never set is left out, as Kubernetes does since 1.34.

Never guesses: a field the table does not have is refused, not dropped.
"""
