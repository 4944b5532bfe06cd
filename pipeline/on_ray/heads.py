"""Find the Ray that a job would join, without importing Ray, which takes more than half a second"""

import os
import socket
import stat
import sys
from pathlib import Path

CONNECT_SECONDS = 5.0


def ray_at_hand(address: str | None) -> str | None:
    """Return in words which Ray a job would join; None if no address is given and no head runs on this machine.

    `address` is placement.address. Words such as "local" count as an address: they ask for a Ray that is started.
    """
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return "this process has joined Ray"
    if address:
        return f"placement.address is {address}"
    if from_environment := os.environ.get("RAY_ADDRESS"):
        return f"RAY_ADDRESS is {from_environment}"
    head = local_head_address()
    return head and f"a head runs on this machine, at {head}"


def local_head_address() -> str | None:
    """Return the address of a head that this user or root started on this machine with `ray start`.

    None if no such head answers.
    """
    file = address_file()  # any user may create this file, so its owner is checked below
    try:
        about = file.lstat()
        address = file.read_text().strip() if stat.S_ISREG(about.st_mode) and about.st_uid in (0, os.getuid()) else ""
    except OSError:
        return None
    return address if is_listening(address) else None


def address_file() -> Path:
    """Return the file to which `ray start` writes the address of this machine's head.

    `ray.init("auto")` reads this file without checking who wrote the file, but any user can create it.
    """
    temporary = os.environ.get("TMPDIR", "/tmp") if sys.platform.startswith("linux") else "/tmp"
    return Path(os.environ.get("RAY_TMPDIR", temporary), "ray", "ray_current_cluster")


def is_listening(address: str) -> bool:
    """Return whether something listens at HOST:PORT or ray://HOST:PORT; True for "auto" and "local".

    Ray itself resolves "auto" and "local". Without this check, Ray would retry a wrong address for minutes.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return address in ("auto", "local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
