"""A durable write moves the metrics that are documented for it."""

from pathlib import Path

from clusterspace.apiserver.store.interface import ABSENT
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.telemetry import metrics


def value_of(sample: str) -> float:
    return metrics.REGISTRY.get_sample_value(sample) or 0.0


async def test_writes_are_counted_by_commit_and_their_wait_for_the_disk_is_timed(
    tmp_path: Path,
) -> None:
    before = [
        value_of("clusterspace_store_commits_total"),
        value_of("clusterspace_store_batch_size_sum"),
        value_of("clusterspace_store_fsync_seconds_count"),
        value_of("clusterspace_store_fsync_seconds_sum"),
    ]
    store = await SqliteStore.open(tmp_path / "store.db")
    for number in range(3):
        await store.put(f"/key/{number}", b"value", expected=ABSENT)
    await store.close()

    assert value_of("clusterspace_store_commits_total") == before[0] + 3
    assert value_of("clusterspace_store_batch_size_sum") == before[1] + 3
    assert value_of("clusterspace_store_fsync_seconds_count") == before[2] + 3
    assert value_of("clusterspace_store_fsync_seconds_sum") > before[3]
