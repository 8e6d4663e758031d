"""CustomResourceDefinitions: what they say, whether they may, and what becomes of them.

reading.py     a definition as values: names, versions, schemas
checks.py      everything a kube-apiserver refuses a definition for
versions.py    the same for one version: its schema, columns, subresources
acceptance.py  which names it gets, whether it is served, how it ends: its status
columns.py     its printer columns
"""
