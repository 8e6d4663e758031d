"""The rules of CustomResourceDefinitions themselves, beside those of every built-in kind."""

from clusterspace.apiserver.builtin_rules import BuiltinRules
from clusterspace.builtins.definitions.acceptance import mark_definition_deleted
from clusterspace.builtins.definitions.checks import validate_definition, validate_definition_update
from clusterspace.builtins.validation.metadata import check_metadata, check_metadata_update
from clusterspace.errors import Cause
from clusterspace.kube.names import dns1123_subdomain_problems
from clusterspace.kube.objects import Object


class DefinitionRules(BuiltinRules):
    """A definition is refused when it could not be served, and goes after its objects."""

    def validate_create(self, kube_object: Object) -> tuple[Cause, ...]:
        """Return every reason to refuse a new definition."""
        found = check_metadata(kube_object, dns1123_subdomain_problems)
        return (*found, *validate_definition(kube_object))

    def validate_update(self, new: Object, old: Object, subresource: str) -> tuple[Cause, ...]:
        """Return every reason to refuse a change; a status is its controller's business."""
        found = tuple(check_metadata_update(new, old))
        return found if subresource else (*found, *validate_definition_update(new, old))

    def prepare_delete(self, marked: Object, old: Object) -> Object:
        """Hold the definition until its objects are gone."""
        return mark_definition_deleted(marked, old)
