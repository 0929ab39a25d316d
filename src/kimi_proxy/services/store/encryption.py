"""Texts encrypted at rest: AES-256-GCM by a key from the environment or a command, with older keys for reading."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import shlex
import threading
from typing import TYPE_CHECKING

from kimi_proxy.core.errors import ConfigError, StoreUnavailable, ToolFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_proxy.core.config import Config

MAGIC = b"KPE1"  # no zstd frame begins so
ID_BYTES, NONCE_BYTES, KEY_BYTES = 8, 12, 32
COMMAND_S = 30.0
VARIABLE = "KIMI_PROXY_STORE_KEY"


class TextCipher:
    """Encrypts with the first key, and decrypts with any of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Raise ConfigError if the package for it is not installed."""
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as e:
            raise ConfigError(
                f"{VARIABLE} needs a package that is not installed: pip install 'kimi-proxy[team]'"
            ) from e
        self._by_id = {_id(key): AESGCM(key) for key in keys}
        self._newest, self._id = keys[0], _id(keys[0])

    def encrypt(self, frame: bytes, hashed: bytes) -> bytes:
        """Return `frame` encrypted, bound to the hash of its text.

        The nonce follows from the frame and the key, so the same text is the same row, and no nonce is used twice.
        """
        nonce = hmac.digest(self._newest, frame, "sha256")[:NONCE_BYTES]
        return MAGIC + self._id + nonce + self._by_id[self._id].encrypt(nonce, frame, hashed)

    def decrypt(self, frame: bytes, hashed: bytes) -> bytes:
        """Raise StoreUnavailable if the key is missing, or the bytes were not encrypted with it."""
        from cryptography.exceptions import InvalidTag

        id, rest = frame[len(MAGIC) : len(MAGIC) + ID_BYTES], frame[len(MAGIC) + ID_BYTES :]
        cipher = self._by_id.get(id)
        if cipher is None:
            raise StoreUnavailable(f"the key of this encrypted text is not in {VARIABLE}: add the older key there")
        try:
            return cipher.decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], hashed)
        except InvalidTag as e:
            raise StoreUnavailable(
                "this text is damaged on disk (it cannot be decrypted): read the source again"
            ) from e

    def is_current(self, frame: bytes) -> bool:
        """Return whether a frame is encrypted by the newest key."""
        return frame.startswith(MAGIC + self._id)


def load_cipher(config: Config) -> TextCipher | None:
    """Return what encrypts texts; None if no key is set. Raise ConfigError if a key cannot be read."""
    if config.store.key_command:
        return TextCipher(_keys(_run(config.store.key_command), "store.key_command"))
    if config.store_key is None:
        return None
    return TextCipher(_keys(config.store_key.get_secret_value(), VARIABLE))


def _keys(text: str, source: str) -> list[bytes]:
    keys = []
    for written in text.replace(",", " ").split():
        try:
            key = base64.b64decode(written, validate=True)
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES:
            raise ConfigError(f"{source}: keys must be {KEY_BYTES} bytes in base 64, as from `openssl rand -base64 32`")
        keys.append(key)
    if not keys:
        raise ConfigError(f"{source} returned no key")
    return keys


def _run(command: str) -> str:
    from kimi_proxy.proxy.commands import run_plain
    from kimi_proxy.proxy.process import Command

    written = bytearray()

    def write(piece: bytes) -> bool:
        written.extend(piece)
        return len(written) < 65_536

    try:
        done = run_plain(
            Command(tuple(shlex.split(command)), dict(os.environ), "."), COMMAND_S, write, threading.Event()
        )
    except (OSError, ToolFailed, ValueError) as e:
        raise ConfigError(f"store.key_command could not be run: {e}") from e
    if done.exit_code != 0:
        raise ConfigError(f"store.key_command failed with exit code {done.exit_code}")
    return written.decode("ascii", "replace")


def _id(key: bytes) -> bytes:
    """Return an identifier of a key that reveals nothing about the key."""
    return hashlib.sha256(b"kimi-proxy store key" + key).digest()[:ID_BYTES]
