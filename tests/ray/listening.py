"""Where the processes of a Ray listen."""

import psutil


def listening(pid: int) -> dict[str, set[str]]:
    """Name of a process, of `pid` and all below it, to the addresses on which it listens."""
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
