"""Every function there is, in one table."""

from collections.abc import Mapping
from typing import Final

from clusterspace.kube.cel.libraries import (
    amounts,
    collections,
    formats,
    formatting,
    network,
    operators,
    texts,
    times,
)
from clusterspace.kube.cel.signatures import Overload, table_of

FUNCTIONS: Final[Mapping[str, tuple[Overload, ...]]] = table_of(
    (
        *operators.FUNCTIONS,
        *texts.FUNCTIONS,
        *formatting.FUNCTIONS,
        *collections.FUNCTIONS,
        *times.FUNCTIONS,
        *network.FUNCTIONS,
        *amounts.FUNCTIONS,
        *formats.FUNCTIONS,
    )
)
