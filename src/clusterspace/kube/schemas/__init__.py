"""Structural schemas: one model for built-in kinds and CustomResourceDefinitions.

strings.py     patterns as RE2 reads them, and the string formats that Kubernetes checks
model.py       Schema: the rules of one place in an object; that of `metadata`; the walk; raw
               JSON to Schema, or a refusal that names the place
pruning.py     fill in what was left out, drop (or name) what the schema does not know
checks.py      the rules of a schema, one check each, and the problems they find
validation.py  every cause at once, in Kubernetes' field-path form; ratcheting
structural.py  is this schema one that a CustomResourceDefinition may have?
"""
