"""What an object is called: from its cluster's words to the client's words, and back.

    rules (which fields hold names?) -> edits (change them, touch nothing else) -> the same object

edits.py     JSON text changed in a few places; everything else stays as it was written
rules.py     the table of fields that hold names, and what becomes of them on the way out and in
inbound.py   what a client sends: JSON, YAML, protobuf, the four kinds of patch, and queries
outbound.py  what one cluster answered, with the names the client used

Pure, and below the steps that use it: lists are merged by it, single bodies rewritten by it.
"""
