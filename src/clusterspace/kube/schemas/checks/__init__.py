"""What a schema may ask of a value, one rule at a time.

problems.py  Problem: something wrong, at a place still on its way to the root
scalars.py   length, pattern, format, range, enum
members.py   how many members, and none of them twice
junctors.py  allOf, anyOf, oneOf, not
patterns.py  regular expressions as Kubernetes reads them
formats.py   the string formats that Kubernetes checks
"""
