"""What was seen under fire, held against etcd's own log, line by line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.robustness.etcd_log import Change, EtcdLog
from tests.robustness.fault_clients import Candidate, Diary, Listed, Piece
from tests.robustness.linearizability import Kind, Operation, Outcome, violations

from clusterspace.controllers.leases import epoch_of

MAPS = "core/configmaps/default/"
_LEASES = "coordination.k8s.io/leases/default/"


@dataclass(frozen=True, slots=True)
class MapChange:
    """One change of a ConfigMap, as a watcher has to be told of it."""

    type: str
    name: str
    revision: int
    value: str


def map_changes(log: EtcdLog) -> list[MapChange]:
    """Return the changes of ConfigMaps in the log; what is deleted is shown as it last was."""
    found: list[MapChange] = []
    last: dict[str, str] = {}
    for change in log.changes:
        if change.key.startswith(MAPS):
            name = change.key.removeprefix(MAPS)
            type_ = "DELETED" if change.is_delete else "ADDED" if change.is_create else "MODIFIED"
            value = last.get(name, "?") if change.is_delete else _value(change)
            last[name] = value
            found.append(MapChange(type_, name, change.revision, value))
    return found


def _value(change: Change) -> str:
    return str((change.stored.get("data") or {}).get("v", ""))


def watch_problems(pieces: Iterable[Piece], changes: Sequence[MapChange], start: int) -> list[str]:
    """Compare every stretch of a watch with the log: the same, in order, once, none left out."""
    found: list[str] = []
    for piece in pieces:
        if piece.after < start:
            continue  # it goes back to before this run, of which this log has nothing
        happened = [each for each in changes if piece.after < each.revision <= piece.reached]
        told = [MapChange(*each[:2], each[2], each[3]) for each in piece.events]
        # What was deleted and made before this run is not known by its value.
        wanted = [
            each if each.value != "?" or place >= len(told) else told[place]
            for place, each in enumerate(happened)
        ]
        if told != wanted:
            extra = [each for each in told if each not in happened][:3]
            missing = [each for each in happened if each not in told][:3]
            found.append(
                f"watch at {piece.hub} from {piece.after} to {piece.reached}: left out {missing},"
                f" told besides {extra}, of {len(told)} told and {len(happened)} that happened"
            )
        for version, count in piece.bookmarks:
            before = [each for each in happened if each.revision <= version]
            if len(before) != count:
                found.append(
                    f"watch at {piece.hub} from {piece.after}: bookmark {version} after {count}"
                    f" events, and {len(before)} had happened"
                )
    return found


def list_problems(
    lists: Iterable[Listed],
    changes: Sequence[MapChange],
    log: EtcdLog,
    operations: Sequence[tuple[float, int]],
) -> list[str]:
    """Compare every list with the log at its version, which is not older than what was promised."""
    found: list[str] = []
    for listed in lists:
        promised = max((version for at, version in operations if at < listed.called), default=0)
        if listed.version < promised:
            found.append(f"list at {listed.hub} shows {listed.version}, after {promised} was told")
        if listed.version < log.start:
            continue
        state: dict[str, tuple[int, str]] = {}
        touched: set[str] = set()
        for each in changes:
            if each.revision <= listed.version:
                touched.add(each.name)
                if each.type == "DELETED":
                    state.pop(each.name, None)
                else:
                    state[each.name] = each.revision, each.value
        shown = {name: it for name, it in listed.items.items() if name in touched}
        if shown != state:
            names = sorted(
                name for name in shown.keys() | state.keys() if shown.get(name) != state.get(name)
            )
            first = names[0]
            found.append(
                f"list at {listed.hub}, version {listed.version}: {len(names)} differ, {first} is"
                f" {shown.get(first)} and was {state.get(first)}"
            )
    return found


def write_problems(
    operations: Sequence[Operation], changes: Sequence[MapChange], keys: str
) -> list[str]:
    """Compare every write with the log: done is there, once; refused is not there."""
    found: list[str] = []
    written: dict[str, int] = {}
    for each in changes:
        if each.type != "DELETED" and each.name.startswith(keys):
            written[each.value] = written.get(each.value, 0) + 1
    for operation in operations:
        if operation.kind in (Kind.READ, Kind.DELETE) or operation.value is None:
            continue
        times = written.get(operation.value, 0)
        if times > 1:
            found.append(f"{operation.value} was written {times} times")
        if operation.outcome is Outcome.DONE and not times:
            found.append(f"lost: {operation}")
        if operation.outcome is Outcome.REFUSED and times:
            found.append(f"refused, and done all the same: {operation}")
    return found


def leader_problems(candidates: Iterable[Candidate], log: EtcdLog, lease: str) -> list[str]:
    """Return the acts that took effect after the next leader had the Lease."""
    epochs = [
        (each.revision, epoch_of(each.stored))
        for each in log.changes
        if each.key == f"{_LEASES}{lease}" and not each.is_delete
    ]
    done = {
        each.key.removeprefix(MAPS): each.revision
        for each in log.changes
        if each.key.startswith(f"{MAPS}act-") and not each.is_delete
    }
    found: list[str] = []
    for candidate in candidates:
        for act in candidate.acts:
            at = done.get(act.name)
            later = [epoch for revision, epoch in epochs if at is not None and revision < at]
            if later and max(later) > act.epoch:
                found.append(
                    f"{act.name} was done at {at}, in epoch {max(later)}, by one of {act.epoch}"
                )
    return found


def all_problems(
    log: EtcdLog,
    operations: Sequence[Operation],
    diaries: Sequence[Diary],
    candidates: Sequence[Candidate],
    *,
    keys: str,
    lease: str,
) -> list[str]:
    """Return everything that cannot have been."""
    changes = map_changes(log)
    versions = {each.value: each.revision for each in changes if each.type != "DELETED"}
    promised = [
        (each.answered, versions[each.value])
        for each in operations
        if each.outcome is Outcome.DONE and each.value in versions and each.kind is not Kind.READ
    ]
    # Writes without an answer that are not in the log have not happened: left out, the search for
    # an order takes a second where a hundred of them took an hour. A read that shows one all the
    # same has then nothing to explain it.
    happened = [
        each
        for each in operations
        if each.outcome is not Outcome.UNKNOWN or each.value is None or each.value in versions
    ]
    found = violations(happened) + write_problems(operations, changes, keys)
    for diary in diaries:
        found += watch_problems(diary.pieces, changes, log.start)
        found += list_problems(diary.lists, changes, log, promised)
    return found + leader_problems(candidates, log, lease)
