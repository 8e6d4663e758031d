"""Kubernetes protobuf bodies to and from the JSON objects everyone else works with.

    body -> envelope -> messages (which fields?) -> decode -> object
    object -> encode -> envelope -> body

wire.py      the envelope with its four magic bytes; tags, varints and lengths
values.py    what a number, a text or a time is on the wire and in JSON
messages.py  the table of messages and their fields, from `fields.txt`
bodies.py    a body to the object a Go client would have sent as JSON
encoding.py  an object, a list or a watch event to the bytes a kube-apiserver would have answered

**Which zeros are shown.** Go clients write every field that is not a pointer, set or not, so a
zero on the wire may mean "nobody said anything". The table knows how each field is declared and
the JSON is what a Go client would have sent as JSON: `tty: false` is left out, `replicas: 0` (a
pointer, so somebody chose it) stays, `containers[].name: ""` (always shown) stays, `resources: {}`
stays. A creation time that was never set is left out, as Kubernetes does since 1.34.

Never guesses: a field the table does not have is refused, not dropped.
"""
