"""What is known of a kind: its replicas, its health, what it needs, what its cluster may keep.

templates.py      how many replicas a template wants, what it needs beside it, what members keep
reports.py        what a member reports of an object, its health too; many such reports summed up
"""
