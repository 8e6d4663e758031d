"""Credentials that an earlier version wrote: tied to their Clusters before anybody uses them."""

from clusterspace.apis import clusters
from clusterspace.apis.cluster_credentials import USED_WITH
from clusterspace.apiserver import forms
from clusterspace.apiserver.admission.cluster_secrets import tied
from clusterspace.apiserver.state import HubState
from clusterspace.apiserver.writing import edit_own
from clusterspace.kube.objects import annotations_of


async def tie_all(hub: HubState) -> None:
    """Note on every Secret that has a Cluster as its owner where that is; harmless if repeated.

    Run before the hub serves its first request, so that nobody can move a Cluster in between.
    """
    served = hub.catalog.get_storage("", "secrets")
    page = await hub.store.range(served.prefix(clusters.CLUSTER_NAMESPACE))
    for entry in page.items:
        secret = forms.decode_stored(entry, served.form)
        if USED_WITH in annotations_of(secret):
            continue
        noted = await tied(hub, secret)
        if noted is not secret:
            await edit_own(hub, served, entry.key, lambda _, noted=noted: noted)
