"""Whose the other end of a connection is, in the tables that systems give of all connections."""

import platform
import socket
import struct
import subprocess
import sys

import pytest

from kimi_proxy.proxy import peer

CLIENT, SERVER = ("127.0.0.1", 50_123), ("127.0.0.1", 8_000)
CLIENT6, SERVER6 = ("::1", 50_123), ("::1", 8_000)
Ends = tuple[tuple[str, int], tuple[str, int]]


def packed(host: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)


def record(kind: int, length: int, *fields: tuple[int, bytes]) -> bytes:
    made = bytearray((length + 7) & ~7)
    struct.pack_into("=II", made, 0, length, kind)
    for at, value in fields:
        made[at : at + len(value)] = value
    return bytes(made)


def mac_connection(local: tuple[str, int], foreign: tuple[str, int], uid: int) -> bytes:
    """The records of one connection: its addresses, its socket, its buffers, its counts, its state of TCP."""
    ports = struct.pack("!HH", foreign[1], local[1])
    version = b"\2" if ":" in local[0] else b"\1"
    places = (48, packed(foreign[0]).rjust(16, b"\0")), (64, packed(local[0]).rjust(16, b"\0"))
    addresses = record(0x10, 104, (16, ports), (44, version), *places)
    owner = record(0x01, 76, (64, uid.to_bytes(4, sys.byteorder)))
    return addresses + owner + record(0x02, 36) + record(0x04, 36) + record(0x08, 132) + record(0x20, 204)


def mac_list(*connections: bytes) -> bytes:
    head = record(len(connections), 24)
    return head + b"".join(connections) + head


@pytest.mark.parametrize(("client", "server"), [(CLIENT, SERVER), (CLIENT6, SERVER6)])
def test_the_list_of_macos_has_the_owner_of_the_client_and_not_of_the_server(
    client: tuple[str, int], server: tuple[str, int]
) -> None:
    others = [mac_connection((client[0], 50_123), (server[0], 9_000), 7), mac_connection(server, client, 0)]
    table = mac_list(*others, mac_connection(client, server, 501), mac_connection((client[0], 50_124), server, 8))

    assert peer.owner_in_pcb_list(table, client, server) == 501


def test_a_connection_that_is_not_in_the_list_of_macos_has_no_owner() -> None:
    # One that has lost its socket is followed by the end of the list, whose number of records is no kind of record.
    lost = mac_connection(CLIENT, SERVER, 501)[:104]

    assert peer.owner_in_pcb_list(mac_list(lost), CLIENT, SERVER) is None
    assert peer.owner_in_pcb_list(mac_list(), CLIENT, SERVER) is None


@pytest.mark.parametrize("table", [b"", b"\x18", b"\x08\0\0\0" + b"\0" * 40])
def test_what_is_no_list_of_macos_is_an_error(table: bytes) -> None:
    with pytest.raises(struct.error):
        peer.owner_in_pcb_list(table, CLIENT, SERVER)


def windows_row(local: tuple[str, int], remote: tuple[str, int], process: int) -> bytes:
    ports = [struct.pack("!HH", address[1], 0) for address in (local, remote)]
    if ":" in local[0]:
        scope = bytes(4)
        ends = packed(local[0]) + scope + ports[0] + packed(remote[0]) + scope + ports[1]
        return ends + struct.pack("=II", 5, process)
    ends = packed(local[0]) + ports[0] + packed(remote[0]) + ports[1]
    return struct.pack("=I", 5) + ends + struct.pack("=I", process)


@pytest.mark.parametrize(("client", "server"), [(CLIENT, SERVER), (CLIENT6, SERVER6)])
def test_the_table_of_windows_has_the_process_of_the_client(client: tuple[str, int], server: tuple[str, int]) -> None:
    rows = [windows_row(server, client, 4), windows_row(client, (server[0], 9_000), 5), windows_row(client, server, 6)]
    table = len(rows).to_bytes(4, "little") + b"".join(rows) + b"\0" * 100

    assert peer.owner_in_tcp_table(table, client, server) == 6
    assert peer.owner_in_tcp_table(table, (client[0], 1), server) is None


@pytest.mark.parametrize("system", ["darwin", "win32", "sunos5"])
def test_a_system_that_does_not_answer_is_not_trusted(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(sys, "platform", system)

    assert not peer.can_ask()


PROC_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LITTLE_ENDIAN = pytest.mark.skipif(sys.byteorder != "little", reason="the table is written as a PC writes it")


def proc_row(local: str, remote: str, uid: int, inode: int) -> str:
    return (
        f"   1: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {uid:5}        0 {inode} 1 0 20 4 30 10 -1\n"
    )


@LITTLE_ENDIAN
@pytest.mark.parametrize(
    ("ends", "local", "remote"),
    [
        ((CLIENT, SERVER), "0100007F:C3CB", "0100007F:1F40"),
        ((CLIENT6, SERVER6), f"{'0' * 24}01000000:C3CB", f"{'0' * 24}01000000:1F40"),
    ],
)
def test_the_table_of_linux_has_the_owner_of_the_client_and_not_of_the_server(
    ends: Ends, local: str, remote: str
) -> None:
    rows = proc_row(remote, local, 7, 70), proc_row(local, remote, 501, 50)

    assert peer.owner_in_proc_table(PROC_HEAD + "".join(rows), *ends) == (501, 50)
    assert peer.owner_in_proc_table(PROC_HEAD + rows[0], *ends) == (0, 0)
    with pytest.raises(ValueError, match="without an owner"):
        peer.owner_in_proc_table(f"{PROC_HEAD} 1: {local} {remote} 01\n", *ends)


# A filter of system calls that lets everything pass but sockets of netlink, as a strict seccomp profile does.
WITHOUT_NETLINK = """
import ctypes, os, socket, struct, sys
SOCKET = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, SOCKET), (0x20, 0, 0, 16), (0x15, 0, 1, socket.AF_NETLINK),
         (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = b"".join(struct.pack("HBBI", *step) for step in steps)
kept = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(kept))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0):
    sys.exit("there are no filters here")
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
except PermissionError:
    from kimi_proxy.proxy import peer
    print(peer.can_ask())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        is_root = os.geteuid() == 0
        os.seteuid(65534) if is_root else None
        client = socket.socket()
        os.seteuid(0) if is_root else None
        client.connect(listener.getsockname())
        print(peer.is_own(client.getsockname(), listener.getsockname()) != is_root)
        print(peer.is_own(client.getsockname(), ("127.0.0.1", 1)))
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="filters of Linux, by number"
)
def test_a_linux_that_allows_no_netlink_is_asked_by_its_table() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NETLINK], capture_output=True, text=True, check=False)
    if "there are no filters here" in done.stderr:
        pytest.skip("this system filters no calls")

    assert done.stdout == "True\nTrue\nFalse\n", done.stderr
