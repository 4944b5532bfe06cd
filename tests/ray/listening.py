"""Addresses on which the processes of a Ray listen."""

import psutil


def listening(pid: int) -> dict[str, set[str]]:
    """Return process name -> addresses on which it listens, for `pid` and its descendants."""
    found: dict[str, set[str]] = {}
    top = psutil.Process(pid)
    for process in (top, *top.children(recursive=True)):
        try:
            sockets, name = process.net_connections("inet"), (process.cmdline() or [""])[0]
        except psutil.NoSuchProcess:  # it ended meanwhile
            continue
        addresses = {one.laddr.ip.removeprefix("::ffff:") for one in sockets if one.status == psutil.CONN_LISTEN}
        if addresses:
            found[name] = found.get(name, set()) | addresses
    return found
