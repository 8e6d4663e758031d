"""A whole live cluster taken in: discovered, planned, taken over, proved, and given back.

It stands above the flows: it reads the member as `execution` would write to it, and writes to the
hub what people would write, templates and policies. Nothing below knows that it exists.
"""
