"""The rules of names that say whose they are: `example.com/thing`."""

from collections.abc import Iterator

from clusterspace.builtins.validation.rules import problems_at
from clusterspace.errors import Cause
from clusterspace.kube import causes
from clusterspace.kube.names import dns1123_subdomain_problems


def check_domain_path(text: str, path: str) -> Iterator[Cause]:
    """Check a path that starts with the domain of its owner."""
    if not text:
        yield causes.required(path)
        return
    domain, slash, rest = text.partition("/")
    if not slash or not domain or not rest:
        why = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield causes.invalid(path, text, why)
        return
    yield from problems_at(path, domain, dns1123_subdomain_problems(domain))
