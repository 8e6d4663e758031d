"""A whole live cluster taken in: discovered, planned, taken over, proved, and given back.

It stands above the flows: it reads the member as `execution` would write to it, and writes to the
hub what people would write, templates and policies. Nothing below knows that it exists.

ownership.py        whose an object is today: the marks of tools, operators and hubs, read
snapshots.py        the identities of what runs, recorded page by page, and as a file
proof.py            two snapshots compared: changed, gone, new, not seen, explained
proof_documents.py  that comparison as text, JSON and HTML
"""
