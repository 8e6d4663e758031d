"""An operator whose create handler runs as soon as the watch tells the finalizer it has written.

It waits for that version as long as it takes: told by another one, it would never run.
"""

import kopf

SELECTED = {"labels": {"operated": "yes"}}


@kopf.on.startup()
def wait_for_own_writes(settings, **_):
    settings.persistence.consistency_timeout = 3600
    settings.posting.enabled = False


@kopf.on.create("configmaps", **SELECTED)
def create(patch, **_):
    patch.setdefault("data", {})["step"] = "replaced"


@kopf.on.delete("configmaps", **SELECTED)
def delete(**_):
    """Makes kopf write a finalizer first."""
