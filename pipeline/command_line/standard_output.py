"""Standard output of jobs: escape what its encoding lacks, end quietly if nobody reads it, and name a full disk"""

import io
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

from pipeline.errors import ConfigError

NOT_READ = 128 + signal.SIGPIPE
"""Exit code 141, which shells report for a program that SIGPIPE has ended, as in `program | head`."""
abandoned = threading.Event()
"""Set when a write has failed because nobody reads standard output any more."""


class StandardOutput(io.TextIOWrapper):
    """Standard output whose failed writes stop the command as Ctrl-C does, or raise ConfigError."""

    def write(self, text: str) -> int:
        with self._failures():
            return super().write(text)

    def flush(self) -> None:
        with self._failures():
            super().flush()

    @contextmanager
    def _failures(self) -> Generator[None]:
        """Turn errors of writing into an interrupt or ConfigError, and discard all text from then on.

        Text that is still in the buffer would fail again at exit.
        """
        try:
            yield
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if isinstance(error, BrokenPipeError):
                abandoned.set()
                _interrupt_main()
                return
            raise ConfigError(
                f"standard output cannot be written ({error.strerror}): free space, or write it elsewhere"
            ) from error


def _interrupt_main() -> None:
    """Raise KeyboardInterrupt in the main thread. An exception in another thread would end that thread alone."""
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def guard() -> None:
    """Guard standard output, and let it and standard error escape characters that their encoding lacks, as \\xe9.

    A no-op for a stream that a test or notebook has replaced, or that the shell has closed.
    """
    for stream in (sys.stdout, sys.stderr):
        if type(stream) is io.TextIOWrapper:
            stream.reconfigure(errors="backslashreplace")
    if type(before := sys.stdout) is io.TextIOWrapper:
        encoding, line_buffering, write_through = before.encoding, before.line_buffering, before.write_through
        sys.stdout = sys.__stdout__ = StandardOutput(
            before.detach(),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=line_buffering,
            write_through=write_through,
        )


@contextmanager
def flushed() -> Generator[None]:
    """Flush standard output at the end, so that an error is raised here and not while Python exits.

    After another error there is no flush, because that error must not be hidden.
    """
    try:
        yield
    except SystemExit:  # after help
        _flush()
        raise
    _flush()


def _flush() -> None:
    if sys.stdout is not None:  # None: the shell has closed it (>&-)
        sys.stdout.flush()
