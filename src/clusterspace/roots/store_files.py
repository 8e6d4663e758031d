"""The store files of a data directory, for an operator: back up, restore, check."""

from pathlib import Path

from clusterspace.apiserver.store import backups
from clusterspace.apiserver.store.backups import Inspection
from clusterspace.apiserver.store.files import STORE_FILE_NAME


def store_path(place: Path) -> Path:
    """Return the store file meant by a data directory, or by the file itself."""
    return place / STORE_FILE_NAME if place.is_dir() else place


def back_up(place: Path, target: Path) -> int:
    """Copy a store, in use or not, to a new file; return the revision it was copied at."""
    return backups.back_up(store_path(place), target).revision


def restore(backup: Path, data_directory: Path) -> int:
    """Make a new store in a data directory from a backup; return the revision it starts at."""
    return backups.restore(backup, data_directory / STORE_FILE_NAME).revision


def check(place: Path) -> Inspection:
    """Verify everything in a store file or a backup."""
    return backups.inspect(store_path(place))
