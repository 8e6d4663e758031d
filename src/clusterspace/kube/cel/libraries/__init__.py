"""Every function that a rule may call, declared beside its code.

standard.py     CEL's own: operators, conversions, timestamps and durations
strings.py      strings, regular expressions and `'%s of %d'.format([…])`
lists.py        lists, sets and optionals
kubernetes.py   Kubernetes' additions: URLs, IP addresses, quantities, semantic versions, formats
"""

from collections.abc import Mapping
from typing import Final

from clusterspace.kube.cel.libraries import kubernetes, lists, standard, strings
from clusterspace.kube.cel.types import Overload

FUNCTIONS: Final[Mapping[str, tuple[Overload, ...]]] = {
    name: tuple(
        overload
        for library in (standard.LIBRARY, strings.LIBRARY, lists.LIBRARY, kubernetes.LIBRARY)
        for overload in library.overloads.get(name, ())
    )
    for name in {
        **standard.LIBRARY.overloads,
        **strings.LIBRARY.overloads,
        **lists.LIBRARY.overloads,
        **kubernetes.LIBRARY.overloads,
    }
}
"""The overloads of all libraries by the names of their functions."""
