"""Which objects a list, watch or deletecollection is about."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from clusterspace.apiserver import forms
from clusterspace.apiserver.catalog import METADATA_FIELDS, Served
from clusterspace.apiserver.http.context import off_loop
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.options import ListOptions
from clusterspace.apiserver.store.interface import KeyValue
from clusterspace.errors import BadRequest
from clusterspace.kube.objects import Object, labels_of, metadata_of
from clusterspace.kube.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)

_SHORT_SELECTOR: Final = 2_048
"""Characters that are parsed in the event loop's own time: up to a thousand terms, 20 ms."""

Decode: TypeAlias = Callable[[KeyValue, forms.Form], Object]
"""Returns a stored object; whoever asks many watchers about one decodes it once."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Label and field selectors of one request, ready to be asked many times."""

    served: Served
    labels: LabelSelector
    fields: FieldSelector

    @property
    def is_everything(self) -> bool:
        """Whether nothing is filtered out."""
        return self.labels.is_everything and self.fields.is_everything

    @property
    def only_name(self) -> str | None:
        """The one name that can match, if the field selector pins it."""
        return self.fields.requires_exact("metadata.name")

    def matches_entry(self, entry: KeyValue, decode: Decode = forms.decode_stored) -> bool:
        """Whether a stored object is selected, decoding as little as possible."""
        if self.is_everything:
            return True
        only = self.only_name
        if only is not None and forms.name_in(entry.key) != only:
            return False
        fields = self.fields.fields
        if fields and (only is None or fields != frozenset({"metadata.name"})):
            return self.matches(decode(entry, self.served.form))
        return self.labels.is_everything or self.labels.matches(forms.labels_in(entry))

    def matching(self, entries: Sequence[KeyValue]) -> list[KeyValue]:
        """Return the stored objects that are selected."""
        return [entry for entry in entries if self.matches_entry(entry)]

    def matches(self, kube_object: Object) -> bool:
        """Whether an object is selected."""
        if not self.labels.matches(labels_of(kube_object)):
            return False
        if self.fields.is_everything:
            return True
        metadata = metadata_of(kube_object)
        values = {
            "metadata.name": str(metadata.get("name") or ""),
            "metadata.namespace": str(metadata.get("namespace") or ""),
        }
        for name in self.fields.fields - set(METADATA_FIELDS):
            values[name] = self.served.fields[name](kube_object)
        return self.fields.matches(values)


async def select_for(user: User, served: Served, options: ListOptions) -> Selection:
    """Parse the selectors of a request; a long one off the event loop."""
    if len(options.label_selector) + len(options.field_selector) > _SHORT_SELECTOR:
        return await off_loop(user.name, lambda: select(served, options))
    return select(served, options)


def select(served: Served, options: ListOptions) -> Selection:
    """Parse the selectors of a request; MalformedSelector or BadRequest when they make no sense."""
    fields = parse_field_selector(options.field_selector)
    for name in sorted(fields.fields):
        problem = served.refuse_field(name)
        if problem:
            raise BadRequest(problem)
    return Selection(served, parse_label_selector(options.label_selector), fields)
