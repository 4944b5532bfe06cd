"""Jobs whose standard output has no reader, no space, or an encoding without the characters that are printed."""

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.command_line import main, standard_output
from pipeline.command_line.exit_codes import job_main


@pytest.fixture
def printed_to(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Let standard output write to a descriptor, which is closed after the test."""
    opened: list[int] = []
    monkeypatch.setattr(sys, "__stdout__", sys.__stdout__)
    # A shell without job control has it ignored in the background.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)

    def use(descriptor: int, encoding: str = "utf-8") -> None:
        opened.append(descriptor)
        stream = io.TextIOWrapper(os.fdopen(descriptor, "wb", closefd=False), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", stream)

    yield use
    sys.stdout.flush()  # what Python does at its exit must not fail
    for descriptor in opened:
        os.close(descriptor)
    standard_output.abandoned.clear()
    signal.signal(signal.SIGINT, handler)


def without_reader() -> int:
    """Return the writing end of a pipe whose reading end is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def asks_for_help() -> None:
    print("usage")
    raise SystemExit(0)


def prints_in_a_thread() -> None:
    thread = threading.Thread(target=lambda: print("step 10", flush=True))
    thread.start()
    thread.join()
    time.sleep(20)  # the training itself, which would go on unseen


@pytest.mark.parametrize(
    "does", [lambda: print("short"), lambda: print("long" * 100_000), asks_for_help, prints_in_a_thread]
)
def test_a_job_ends_quietly_when_nobody_reads_its_output(
    does: Callable[[], None], printed_to: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    printed_to(without_reader())
    started = time.monotonic()
    assert job_main(stopped="stopped")(lambda words: does())([]) == 141 == 128 + signal.SIGPIPE
    assert time.monotonic() - started < 10
    assert capsys.readouterr().err == ""


def test_the_command_ends_quietly_when_nobody_reads_its_output(printed_to: Callable[..., None]) -> None:
    printed_to(without_reader())
    assert main.main(["--help"]) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("text", ["short", "long" * 100_000])
def test_a_full_disk_is_named(text: str, printed_to: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    printed_to(os.open("/dev/full", os.O_WRONLY))
    assert job_main(stopped="stopped")(lambda words: print(text))([]) == 2
    assert capsys.readouterr().err == (
        "error: standard output cannot be written (No space left on device): free space, or write it elsewhere\n"
    )


def test_a_broken_connection_and_an_error_of_a_job_keep_their_traceback(printed_to: Callable[..., None]) -> None:
    def fails(error: Exception) -> None:
        print("some lines")
        raise error

    printed_to(without_reader())
    for error in (BrokenPipeError("of a server"), ZeroDivisionError("of a job")):
        with pytest.raises(type(error), match=str(error)):
            job_main(stopped="stopped")(lambda words, error=error: fails(error))([])


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("ascii", rb"caf\xe9 \u2713 \udcff"),
        ("latin-1", b"caf\xe9 \\u2713 \\udcff"),
        ("utf-8", "café ✓ ".encode() + rb"\udcff"),
    ],
)
def test_characters_that_an_encoding_lacks_are_escaped(
    encoding: str, written: bytes, printed_to: Callable[..., None]
) -> None:
    reader, writer = os.pipe()
    printed_to(writer, encoding)
    assert job_main(stopped="stopped")(lambda words: print("café ✓ \udcff"))([]) == 0
    assert os.read(reader, 100) == written + b"\n"
    os.close(reader)
