"""Foreign errors leave as one of ours, in words that help."""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.sqlite.database import is_damage, store_errors

PATH = Path("/somewhere/originals.sqlite3")


def told(error: Exception) -> str:
    with pytest.raises(StoreUnavailable) as caught, store_errors(PATH):
        raise error
    assert caught.value.__cause__ is error
    assert "/" not in str(caught.value)  # members of a team see no path
    return caught.value.full


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("what SQLite said")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_FULL, "disk is full: free some space"),
        (sqlite3.SQLITE_BUSY, "locked"),
        (sqlite3.SQLITE_READONLY, "may not be written"),
        (sqlite3.SQLITE_CANTOPEN, "may not be written"),
        (sqlite3.SQLITE_IOERR_WRITE, "the disk reports an error"),
        (sqlite3.SQLITE_CORRUPT_VTAB, "damaged"),
        (sqlite3.SQLITE_NOTADB, "damaged"),
        (sqlite3.SQLITE_TOOBIG, "SQLite refused"),
    ],
)
def test_sqlite_errors_say_where_what_and_what_to_do(code: int, words: str) -> None:
    message = told(sqlite_error(code))
    assert words in message
    assert message.endswith(f" ({PATH}: what SQLite said)")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "disk is full: free some space"),
        (errno.EROFS, "may not be written"),
        (errno.EACCES, "may not be written"),
        (errno.EIO, "the disk reports an error"),
        (errno.EMFILE, "the system refused"),
    ],
)
def test_system_errors_too(code: int, words: str) -> None:
    message = told(OSError(code, os.strerror(code), "/somewhere"))
    assert words in message
    assert "/somewhere" in message


def test_errors_without_a_code_are_no_mystery() -> None:
    assert f"SQLite refused ({PATH}: odd)" in told(sqlite3.InterfaceError("odd"))
    assert f"the system refused ({PATH}: odd)" in told(OSError("odd"))


def test_only_damage_is_damage() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(sqlite3.OperationalError) as error:
        connection.execute("SELECT nothing")
    assert not is_damage(error.value)
    assert not is_damage(sqlite3.InterfaceError("no code"))
    assert is_damage(sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX))
    assert is_damage(sqlite_error(sqlite3.SQLITE_NOTADB))
