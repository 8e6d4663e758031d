"""A hub whose lists decode and encode every object: what the spliced ones are compared with."""

from collections.abc import Iterable

from clusterspace.apiserver import forms
from clusterspace.apiserver.forms import Form
from clusterspace.apiserver.store.interface import KeyValue
from clusterspace.cli.main import main


def item_pieces(entries: Iterable[KeyValue], form: Form) -> list[bytes]:
    """Return the items as most servers make them."""
    decoded = (forms.decode_stored(entry, form) for entry in entries)
    items = [{k: v for k, v in each.items() if k not in ("kind", "apiVersion")} for each in decoded]
    return [forms.encode(items)[1:-1]]


if __name__ == "__main__":
    forms.item_pieces = item_pieces
    main()
