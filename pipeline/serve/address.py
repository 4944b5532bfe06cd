"""Take the address of a server, and say in one line if another program has it."""

import socket
from collections.abc import Generator
from contextlib import closing, contextmanager

from pipeline.config.serve import Serve
from pipeline.errors import ConfigError

BACKLOG = 2_048
"""Connections that may wait to be accepted; uvicorn's default."""


@contextmanager
def bound(config: Serve) -> Generator[socket.socket]:
    """Yield a socket that is bound to host and port and does not listen yet. Raises ConfigError if they are taken."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as address:
        address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with _taken_as_config_error(config):
            address.bind((config.host, config.port))
        yield address


def listen(address: socket.socket, config: Serve) -> None:
    """Accept connections. Raises ConfigError if another program has begun to, since the socket was bound."""
    with _taken_as_config_error(config):
        address.listen(BACKLOG)


@contextmanager
def _taken_as_config_error(config: Serve) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"host and port ({config.host}:{config.port}) cannot be used ({error.strerror}): choose another port"
        ) from error
