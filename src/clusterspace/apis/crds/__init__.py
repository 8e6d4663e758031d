"""Our own kinds as CustomResourceDefinitions, installed when a hub starts.

notation.py   the notation of the files beside it: kinds, fields and shared types, one line each
schemas.py    fields to schemas
definitions.py  the files to whole CustomResourceDefinitions; start here

The kinds and fields are those of Karmada, KubeFleet and SIG Multicluster, so that their clients
work here.
"""

from clusterspace.apis.crds.definitions import definitions

__all__ = ["definitions"]
