"""Connecting and disconnecting, with any file."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.config_files import HTTP, JSON, STDIO, TOML, json_files, toml_files

from kimi_proxy.connect.client_files import SharedFile
from kimi_proxy.connect.init import EditLog, ServerEdit, apply, plan_edit, plan_undo

FILES = st.one_of(
    st.tuples(st.just(JSON), json_files()),
    st.tuples(st.just(TOML), toml_files()),
)


@settings(max_examples=settings().max_examples // 6)  # each of them is synchronised with the disk
@given(FILES)
def test_init_twice_is_init_once_and_undo_gives_the_same_bytes(config: tuple[SharedFile, str]):
    form, text = config
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "config", EditLog(Path(folder) / "state")
        file.write_bytes(text.encode())
        for entry in (STDIO, STDIO, HTTP):
            apply(plan_edit(ServerEdit(file, form, entry), log), log)
            assert not plan_edit(ServerEdit(file, form, entry), log).is_needed
        undoing = plan_undo(ServerEdit(file, form, {}), log)
        assert undoing is not None or not plan_edit(ServerEdit(file, form, HTTP), log).is_needed
        if undoing is not None:
            apply(undoing, log)

        assert file.read_bytes() == text.encode()
