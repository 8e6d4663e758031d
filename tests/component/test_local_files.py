"""The directory of a local fleet: one process at a time, ports that stay, errors that help."""

import socket

import pytest

from clusterspace.errors import AlreadyRunning, PortTaken, UnusableDirectory
from clusterspace.roots.local.files import ComponentRecord, LocalFiles, RunRecord
from clusterspace.testing.hubs import free_port

RECORD = RunRecord(1, 2.0, True, (ComponentRecord("hub", "ready", 7, 0, 5443, "hub.log"),))


def prepared(directory) -> LocalFiles:
    files = LocalFiles(directory)
    files.prepare()
    return files


def test_only_one_process_runs_a_fleet(tmp_path):
    files = prepared(tmp_path)

    with files.locked(), pytest.raises(AlreadyRunning), LocalFiles(tmp_path).locked():
        pass


def test_what_runs_is_known_while_it_runs_and_forgotten_after(tmp_path):
    files = prepared(tmp_path)
    with files.locked():
        files.write_record(RECORD)
        assert files.read_record() == RECORD
    assert files.read_record() is None
    assert not files.is_running()


def test_a_record_of_a_process_that_was_killed_is_not_believed(tmp_path):
    files = prepared(tmp_path)
    files.write_record(RECORD)

    assert files.read_record() is None


def test_a_free_port_stays_the_same_from_start_to_start(tmp_path):
    first = prepared(tmp_path).choose_ports({"hub": 0, "fleet": 7443})
    second = LocalFiles(tmp_path).choose_ports({"hub": 0, "fleet": 7443})

    assert first == second
    assert second["fleet"] == 7443


def test_ports_that_were_chosen_once_are_those_of_the_next_start(tmp_path):
    usual = {"hub": free_port(), "fleet": free_port()}
    files, chosen = prepared(tmp_path), free_port()

    assert files.choose_ports({"hub": None, "fleet": None}, first=usual) == usual
    assert files.choose_ports({"hub": chosen, "fleet": None}, first=usual)["hub"] == chosen
    assert files.choose_ports({"hub": None, "fleet": None}, first=usual)["hub"] == chosen


def test_a_port_that_is_taken_names_the_flag_that_chooses_another(tmp_path):
    files, usual = prepared(tmp_path), {"hub": free_port(), "fleet": free_port()}
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]

        with pytest.raises(PortTaken, match=f"port {taken} is in use: .* --fleet-port"):
            files.choose_ports({"hub": None, "fleet": taken}, first=usual)

    # It is not remembered.
    assert files.choose_ports({"hub": None, "fleet": None}, first=usual) == usual


def test_a_port_that_somebody_else_took_meanwhile_is_given_up(tmp_path):
    first = prepared(tmp_path).choose_ports({"hub": 0})["hub"]
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
        other.listen()
        assert LocalFiles(tmp_path).choose_ports({"hub": 0})["hub"] != first


def test_the_data_of_a_hub_that_was_started_alone_is_not_touched(tmp_path):
    (tmp_path / "store.db").write_bytes(b"objects")

    with pytest.raises(UnusableDirectory, match="move its files into"):
        LocalFiles(tmp_path).prepare()
