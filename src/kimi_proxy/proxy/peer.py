"""Finds the account of this machine at the other end of a loopback connection.

On Linux, netlink returns the owner of one connection in a fraction of a millisecond. macOS, Windows and a Linux without
netlink (gVisor, a strict seccomp profile) return the table of all connections. A connection to ourselves checks at the
start whether this works (`can_ask`)."""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]

ROOT = 0
TIMEOUT_S = 1.0


class PeerUnknown(Exception):
    """The system cannot be asked."""


def is_own(client: Address, server: Address) -> bool:
    """Return whether the connection's other end is ours or root's. Raise PeerUnknown where that cannot be found out."""
    try:
        if sys.platform == "win32":
            return _is_own_process(owner_in_tcp_table(_tcp_table(":" in client[0]), client[:2], server[:2]))
        if sys.platform == "darwin":
            return owner_in_pcb_list(_pcb_list(), client[:2], server[:2]) in (ROOT, os.geteuid())
        uid, inode = _owner(client, server)
    except (OSError, struct.error, ValueError, AttributeError) as e:
        raise PeerUnknown(str(e)) from e
    # A socket that its program has closed has no owner any more, which the system writes as root.
    return inode != 0 and uid in (ROOT, os.geteuid())


def can_ask() -> bool:
    """Return whether the system can be asked, by a connection to ourselves."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname(), TIMEOUT_S) as client,
        ):
            return is_own(client.getsockname(), listener.getsockname())
    except (OSError, PeerUnknown):
        return False


# Linux

_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ASKED = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PORTS = struct.Struct("!HH")
_ANY_INTERFACE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # and no cookie
_OWNER = struct.Struct("=II")  # uid and inode
_OWNER_AT = _HEADER.size + 4 + 48 + 12


def _owner(client: Address, server: Address) -> tuple[int, int]:
    """Return uid and inode of the client's socket; zeros if there is none."""
    if sys.platform != "linux":
        raise OSError(f"there is no way to ask on {sys.platform}")
    try:
        return _owner_by_netlink(client, server)
    except OSError:
        table = Path("/proc/net/tcp6" if ":" in client[0] else "/proc/net/tcp")
        return owner_in_proc_table(table.read_text("ascii"), client, server)


def _owner_by_netlink(client: Address, server: Address) -> tuple[int, int]:
    if sys.platform != "linux":
        raise OSError("there is no netlink")
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ends = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host in (client[0], server[0]))
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    asked += _PORTS.pack(client[1], server[1]) + ends + _ANY_INTERFACE
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(TIMEOUT_S)
        kernel.send(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked)
        answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
        return 0, 0
    uid, inode = _OWNER.unpack_from(answer, _OWNER_AT)
    return uid, inode


def owner_in_proc_table(table: str, client: Address, server: Address) -> tuple[int, int]:
    """Return uid and inode of the client's socket; zeros if there is none. Raise ValueError for an invalid table."""
    wanted = [_in_proc(client), _in_proc(server)]
    for line in table.split("\n")[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            if len(fields) < _PROC_FIELDS:
                raise ValueError("a connection without an owner")
            return int(fields[7]), int(fields[9])
    return 0, 0


_PROC_FIELDS = 10


def _in_proc(address: Address) -> str:
    """Return an address in the kernel's spelling: words of four bytes in the machine's order, and the port."""
    packed = _pack(address)[:-2]
    words = [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)]
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"


# macOS: `net.inet.tcp.pcblist_n` is a list of records, each of a length and a kind; those of a connection follow each
# other, the addresses before the socket.

_RECORD = struct.Struct("=II")
_SOCKET, _INTERNET = 0x001, 0x010
_FOREIGN_AND_LOCAL_PORT = struct.Struct("!HH")
_PORTS_AT = 16
_VERSION_AT, _IPV4, _FOREIGN_AT, _LOCAL_AT = 44, 0x1, 48, 64
_UID_AT = 64


def owner_in_pcb_list(table: bytes, client: Address, server: Address) -> int | None:
    """Return the uid of the client's socket; None if there is none. Raise struct.error for an invalid list."""
    wanted = _pack(client), _pack(server)
    is_wanted = False
    at = _RECORD.unpack_from(table)[0]  # behind the header of the list itself
    while at + _RECORD.size <= len(table):
        length, kind = _RECORD.unpack_from(table, at)
        if length < _RECORD.size:
            raise struct.error("a record without a length")
        record = table[at : at + length]
        if kind == _INTERNET and length > _LOCAL_AT:
            is_wanted = _ends(record) == wanted
        elif kind == _SOCKET and length >= _UID_AT + 4 and is_wanted:
            return int.from_bytes(record[_UID_AT : _UID_AT + 4], sys.byteorder)
        at += (length + 7) & ~7
    return None


def _ends(record: bytes) -> tuple[bytes, bytes]:
    foreign_port, local_port = _FOREIGN_AND_LOCAL_PORT.unpack_from(record, _PORTS_AT)
    skipped = 12 if record[_VERSION_AT] & _IPV4 else 0  # an IPv4 address is at the end of its field
    foreign, local = (record[at + skipped : at + 16] for at in (_FOREIGN_AT, _LOCAL_AT))
    return local + local_port.to_bytes(2, "big"), foreign + foreign_port.to_bytes(2, "big")


def _pack(address: Address) -> bytes:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.inet_pton(family, address[0]) + address[1].to_bytes(2, "big")


def _pcb_list() -> bytes:
    import ctypes  # only where it is needed: it takes a while to load

    by_name = ctypes.CDLL(None, use_errno=True).sysctlbyname
    name = b"net.inet.tcp.pcblist_n"
    size = ctypes.c_size_t(0)
    if by_name(name, None, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        raise OSError(ctypes.get_errno(), "the list of connections cannot be read")
    size.value += size.value // 4  # it may grow in the meantime
    table = ctypes.create_string_buffer(size.value)
    if by_name(name, table, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        raise OSError(ctypes.get_errno(), "the list of connections cannot be read")
    return table.raw[: size.value]


# Windows: a table of connections with the process of each.

_ROW4 = struct.Struct("=I4s4s4s4sI")  # state, local address and port, remote address and port, process
_ROW6 = struct.Struct("=16sI4s16sI4sII")  # the same with scopes, and the state before the process
_CONNECTIONS, _INSUFFICIENT = 4, 122
_QUERY_PROCESS, _QUERY_TOKEN, _TOKEN_USER = 0x1000, 0x0008, 1


def owner_in_tcp_table(table: bytes, client: Address, server: Address) -> int | None:
    """Return the process of the client's socket; None if there is none."""
    wanted = _pack(client), _pack(server)
    rows = _rows(table, ":" in client[0])
    return next((process for local, remote, process in rows if (local, remote) == wanted), None)


def _rows(table: bytes, is_ipv6: bool) -> Iterator[tuple[bytes, bytes, int]]:
    row = _ROW6 if is_ipv6 else _ROW4
    count = min(int.from_bytes(table[:4], "little"), (len(table) - 4) // row.size)
    for fields in row.iter_unpack(table[4 : 4 + count * row.size]):
        if is_ipv6:
            local, _, local_port, remote, _, remote_port, _, process = fields
        else:
            _, local, local_port, remote, remote_port, process = fields
        yield local + local_port[:2], remote + remote_port[:2], process


def _tcp_table(is_ipv6: bool) -> bytes:
    if sys.platform == "win32":
        import ctypes

        size = ctypes.c_ulong(0)
        family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
        code = _INSUFFICIENT
        table = ctypes.create_string_buffer(0)
        while code == _INSUFFICIENT:
            code = ctypes.windll.iphlpapi.GetExtendedTcpTable(table, ctypes.byref(size), False, family, _CONNECTIONS, 0)
            if code == _INSUFFICIENT:
                table = ctypes.create_string_buffer(size.value)
        if code == 0:
            return table.raw[: size.value]
    raise OSError("the table of connections cannot be read")


def _is_own_process(process: int | None) -> bool:
    """Return whether a process runs as our own user; one of another user cannot even be opened."""
    if sys.platform == "win32" and process is not None:
        import ctypes

        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.OpenProcess.restype = kernel.GetCurrentProcess.restype = ctypes.c_void_p
        handle = kernel.OpenProcess(_QUERY_PROCESS, False, process)
        if handle:
            try:
                theirs = _user_of(handle)
                return theirs is not None and theirs == _user_of(kernel.GetCurrentProcess())
            finally:
                kernel.CloseHandle(ctypes.c_void_p(handle))
    return False


def _user_of(process: int) -> bytes | None:
    """Return the security identifier of a process's user."""
    if sys.platform == "win32":
        import ctypes

        token = ctypes.c_void_p()
        size = ctypes.c_ulong(0)
        security = ctypes.WinDLL("advapi32")
        security.GetLengthSid.argtypes = [ctypes.c_void_p]
        if security.OpenProcessToken(ctypes.c_void_p(process), _QUERY_TOKEN, ctypes.byref(token)):
            try:
                security.GetTokenInformation(token, _TOKEN_USER, None, 0, ctypes.byref(size))
                user = ctypes.create_string_buffer(size.value)
                if security.GetTokenInformation(token, _TOKEN_USER, user, size, ctypes.byref(size)):
                    sid = ctypes.cast(user, ctypes.POINTER(ctypes.c_void_p)).contents.value
                    return ctypes.string_at(sid, security.GetLengthSid(sid)) if sid else None
            finally:
                ctypes.WinDLL("kernel32").CloseHandle(token)
    return None
