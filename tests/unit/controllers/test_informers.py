from clusterspace.controllers.informers import Update


def test_an_update_is_decoded_once_for_all_who_want_to_know() -> None:
    update = Update("default/web", b'{"kind":"ConfigMap"}', b'{"kind":"Secret"}')

    before, after = update.decode_before(), update.decode_after()

    assert (before, after) == ({"kind": "ConfigMap"}, {"kind": "Secret"})
    assert update.decode_before() is before
    assert update.decode_after() is after


def test_what_is_absent_is_decoded_to_nothing() -> None:
    added, removed = Update("web", None, b"{}"), Update("web", b"{}", None)

    assert added.decode_before() is None
    assert removed.decode_after() is None
    assert removed.is_deletion
