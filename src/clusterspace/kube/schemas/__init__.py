"""Structural schemas: one model for built-in kinds and CustomResourceDefinitions.

model.py       Schema: the rules of one place in an object; that of `metadata`; the walk
patterns.py    regular expressions as Kubernetes reads them
formats.py     the string formats that Kubernetes checks
reading.py     raw JSON to Schema, or a refusal that names the place
pruning.py     fill in what was left out, drop (or name) what the schema does not know
checks.py      the rules of a schema, one check each, and the problems they find
validation.py  every cause at once, in Kubernetes' field-path form; ratcheting
structural.py  is this schema one that a CustomResourceDefinition may have?
"""
