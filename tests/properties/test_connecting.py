"""Connecting and disconnecting, with any file."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.config_files import HTTP, JSON, STDIO, TOML, json_files, toml_files

from kimi_proxy.features.editing.client_files import SharedFile
from kimi_proxy.services.init import Ledger, ServerEdit, make, planned, planned_undo

FILES = st.one_of(
    st.tuples(st.just(JSON), json_files()),
    st.tuples(st.just(TOML), toml_files()),
)


@settings(max_examples=settings().max_examples // 6)  # each of them is synchronised with the disk
@given(FILES)
def test_init_twice_is_init_once_and_undo_gives_the_same_bytes(config: tuple[SharedFile, str]):
    form, text = config
    with tempfile.TemporaryDirectory() as folder:
        file, ledger = Path(folder) / "config", Ledger(Path(folder) / "state")
        file.write_bytes(text.encode())
        for entry in (STDIO, STDIO, HTTP):
            make(planned(ServerEdit(file, form, entry), ledger), ledger)
            assert not planned(ServerEdit(file, form, entry), ledger).is_needed
        undoing = planned_undo(ServerEdit(file, form, {}), ledger)
        assert undoing is not None or not planned(ServerEdit(file, form, HTTP), ledger).is_needed
        if undoing is not None:
            make(undoing, ledger)

        assert file.read_bytes() == text.encode()
