"""Migrations: a live cluster taken in by a plan. What the hub keeps of one, and by which names.

    Migration west-7k2f9             whose plan, how far it is; cluster-scoped
    MigrationItems west-7k2f9-00000  two hundred objects of the plan, and what became of each
    Secret west-7k2f9-00000-003      objects as they were before they were taken, compressed

The plan itself is a file. Nothing here is a template, and nothing of it is ever sent to a member.
"""

from typing import Final

from clusterspace.apis.clusters import PARTS_NAMESPACE
from clusterspace.kube.resources import GroupVersionResource

GROUP: Final = "migration.clusterspace.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

PLAN: Final = "MigrationPlan"
MIGRATION: Final = "Migration"
MIGRATION_ITEMS: Final = "MigrationItems"

MIGRATIONS: Final = GroupVersionResource(GROUP, VERSION, "migrations")
ITEMS: Final = GroupVersionResource(GROUP, VERSION, "migrationitems")

ORIGINALS_NAMESPACE: Final = PARTS_NAMESPACE
"""Where originals are kept: a namespace of the control plane, which no policy reaches."""
ORIGINALS_TYPE: Final = f"{GROUP}/originals"

NAME_LABEL: Final = f"{GROUP}/name"
"""Label of everything that the hub keeps for a migration, with its name."""


def items_name(migration: str, chunk: int) -> str:
    """Return the name of a chunk of a migration's items."""
    return f"{migration}-{chunk:05d}"


def originals_name(migration: str, chunk: int, batch: int) -> str:
    """Return the name of the Secret with the originals of a batch."""
    return f"{items_name(migration, chunk)}-{batch:03d}"


def policy_name(migration: str, part: int) -> str:
    """Return the name of a policy that carries what a migration takes."""
    return f"migration-{migration}" + (f"-{part}" if part else "")
