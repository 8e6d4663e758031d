"""Making sure, before a list deletes anything, that the missing are really gone.

A list that leaves objects out is how fleets lost what they ran: a cold cache, a proxy, a bug on
the way answers 200 with nothing in it. So an object counts as gone only when asking for it by name
says so. A few hundred missing ones are sampled; whoever answers "empty" by mistake fails the
first question.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from clusterspace.client.places import Place
from clusterspace.client.raw_objects import Version
from clusterspace.client.resources import Reader
from clusterspace.errors import ApiError, ClusterError, ClusterMisbehaved
from clusterspace.kube.objects import Object, labels_of, resource_version_of, uid_of
from clusterspace.kube.selectors import LabelSelector

MOST_QUESTIONS: Final = 32
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Missing:
    """An object we know and a list left out."""

    key: str
    version: Version


@dataclass(frozen=True, slots=True)
class View:
    """Which objects the list was to show."""

    place: Place
    labels: LabelSelector
    has_field_selector: bool

    def must_show(self, live: Object, missing: Missing) -> bool:
        """Whether a list that is right has this living object in it.

        Another UID is another object: ours is gone. Field selectors are the server's to judge,
        so with one of these only an object that did not change must still be there.
        """
        if uid_of(live) != missing.version.uid:
            return False
        if resource_version_of(live) == missing.version.resource_version:
            return True
        return not self.has_field_selector and self.labels.matches(labels_of(live))


async def confirm_gone(
    member: Reader, cluster: str, view: View, missing: Sequence[Missing], random: Random
) -> None:
    """Return when the missing are gone; raise when one is there or cannot be asked for."""
    asked = missing if len(missing) <= MOST_QUESTIONS else random.sample(missing, MOST_QUESTIONS)
    gate = asyncio.Semaphore(_AT_ONCE)
    troubles: list[ApiError | ClusterError] = []

    async def ask_for(one: Missing) -> None:
        async with gate:
            # Nobody raises in the group: one that fails while it is cancelled forgets the cancel.
            if not troubles:
                try:
                    await _ask_for(member, cluster, view, one)
                except (ApiError, ClusterError) as trouble:
                    troubles.append(trouble)

    async with asyncio.TaskGroup() as group:
        for one in asked:
            group.create_task(ask_for(one), name=f"confirm {one.key}")
    if troubles:
        raise troubles[0]  # it stands for all: they are of the same cluster, in the same moment


async def _ask_for(member: Reader, cluster: str, view: View, one: Missing) -> None:
    live = await member.find(view.place.at(one.key))
    if live is not None and view.must_show(live, one):
        why = f"listed {view.place} without {one.key}, which is there"
        raise ClusterMisbehaved(cluster, why, code=200)
