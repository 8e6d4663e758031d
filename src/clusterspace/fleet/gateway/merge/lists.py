"""Many lists to one: items keep their text, only what holds a name is changed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from clusterspace.fleet.gateway.flow import Subject
from clusterspace.fleet.gateway.merge.parts import ListMetadata, Part, write_list, written_metadata
from clusterspace.fleet.gateway.renaming.edits import Fields
from clusterspace.fleet.gateway.renaming.places import renamer


def merge(parts: Sequence[Part], *, subject: Subject, metadata: ListMetadata) -> Iterable[bytes]:
    """Yield the text of one list, of the kind most parts have; parts stay in the order given.

    There must be a part: a list of nothing has a kind, too, and only a cluster knows it.
    """
    (kind, api_version), _ = Counter((part.kind, part.api_version) for part in parts).most_common(
        1
    )[0]
    opening = {
        "kind": kind,
        "apiVersion": api_version,
        "metadata": written_metadata(metadata),
    }
    items = (item for part in parts for item in renamed_items(part, subject))
    return write_list(opening, "items", items)


def renamed_items(part: Part, subject: Subject) -> Iterator[Fields]:
    """Yield the items of one part with the names they have in the fleet."""
    if part.naming.is_plain:
        return iter(part.items)
    return map(renamer(part.naming, subject), part.items)
