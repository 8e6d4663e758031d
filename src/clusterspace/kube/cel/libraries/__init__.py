"""Every function that a rule may call, declared beside its code.

standard.py     CEL's own: operators, conversions, timestamps and durations
extensions.py   strings, regular expressions, `'%s of %d'.format([…])`; lists, sets, optionals
authorization.py  what somebody may do: `authorizer.path('/healthz').check('get').allowed()`
kubernetes.py   Kubernetes' additions: URLs, IP addresses, quantities, semantic versions, formats
"""

from collections.abc import Mapping
from typing import Final

from clusterspace.kube.cel.libraries import authorization, extensions, kubernetes, standard
from clusterspace.kube.cel.types import Overload

_LIBRARIES: Final = (
    standard.LIBRARY,
    extensions.LIBRARY,
    kubernetes.LIBRARY,
    authorization.LIBRARY,
)

FUNCTIONS: Final[Mapping[str, tuple[Overload, ...]]] = {
    name: tuple(each for library in _LIBRARIES for each in library.overloads.get(name, ()))
    for name in dict.fromkeys(name for library in _LIBRARIES for name in library.overloads)
}
"""The overloads of all libraries by the names of their functions."""
