"""CustomResourceDefinitions: what they say, whether they may, and what becomes of them.

reading.py     a definition as values: names, versions, schemas
checks.py      everything a kube-apiserver refuses a definition for, whole and version by version
acceptance.py  which names it gets, whether it is served, how it ends: its status
"""
