"""Structural schemas: one model for built-in kinds and CustomResourceDefinitions.

model.py       Schema: what is known of one place in an object
reading.py     raw JSON to Schema, or a refusal that names the place
object_meta.py the schema of `metadata`, which every kind shares
defaulting.py  fill in what was left out
pruning.py     drop (or name) what the schema does not know
validation.py  every cause at once, in Kubernetes' field-path form
checks/        the rules that validation is made of
keywords.py    keywords a definition may not have, or only together with others
default_values.py  is a default valid where it stands?
structural.py  is this schema one that a CustomResourceDefinition may have?
ratcheting.py  what was wrong before is let be when it is not touched
walk.py        every place of a value with its schema, for other rules
"""
