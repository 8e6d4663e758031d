"""Credentials of a cluster: tied to where it is, in the write that makes them a Cluster's.

Every join, Karmada's own too, ends by naming the Cluster as the owner of its Secrets. In that write
the hub notes where the Cluster is. Whoever writes the note himself, as our join does, is believed:
who may write a Secret could send its token anywhere as it is. Taking the note away has it written
anew, for the address the Cluster has now.
"""

from clusterspace.apis import clusters
from clusterspace.apis.cluster_credentials import USED_WITH, destination_of, owning_clusters
from clusterspace.apiserver import forms
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    namespace_of,
    uid_of,
    with_metadata,
)


class ClusterSecrets:
    """Notes on Secrets where their tokens are used."""

    async def admit(self, hub: HubState, admission: Admission) -> Object:
        """Note it on a Secret that has a Cluster as its owner and no note of its own."""
        new, old = admission.new, admission.old or {}
        if not admission.is_of("", "Secret") or namespace_of(new) != clusters.CLUSTER_NAMESPACE:
            return new
        noted = annotations_of(new).get(USED_WITH)
        # A note that was there before another Cluster became the owner tells of the one before.
        is_news = owning_clusters(new) != owning_clusters(old)
        is_stale = is_news and noted == annotations_of(old).get(USED_WITH)
        return await tied(hub, new) if not noted or is_stale else new


async def tied(hub: HubState, secret: Object) -> Object:
    """Return a Secret with a note of where its Cluster is; as it is when it has no Cluster."""
    owners = owning_clusters(secret)
    served = hub.catalog.find_kind(clusters.CLUSTERS.group, clusters.KIND)
    if len(owners) != 1 or served is None:
        return secret
    entry = await hub.store.get(served.key("", str(owners[0].get("name"))))
    cluster = {} if entry is None else forms.decode_stored(entry, served.form)
    if not cluster or uid_of(cluster) != owners[0].get("uid"):
        return secret
    noted = {**annotations_of(secret), USED_WITH: destination_of(cluster)}
    return with_metadata(secret, annotations=noted)
