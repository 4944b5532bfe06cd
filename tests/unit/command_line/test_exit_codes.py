"""Exit codes and last lines of a job's main."""

import os
from collections.abc import Callable

import pytest

from pipeline.command_line import stopping
from pipeline.command_line.exit_codes import job_main
from pipeline.errors import ClusterLost, ConfigError


def main_that(does: Callable[[], int | None]) -> Callable[[list[str]], int]:
    @job_main(stopped="stopped; the same command continues")
    def main(arguments: list[str]) -> int | None:
        return does()

    return main


def raising(error: BaseException) -> Callable[[], None]:
    def does() -> None:
        raise error

    return does


@pytest.mark.parametrize(
    ("does", "code", "said"),
    [
        (lambda: None, 0, ""),
        (lambda: 1, 1, ""),
        (raising(ConfigError("steps (0) must be at least 1")), 2, "error: steps (0) must be at least 1\n"),
        (raising(ClusterLost("Ray is gone")), 1, "error: Ray is gone\n"),
        (raising(KeyboardInterrupt()), 130, "stopped; the same command continues\n"),
        (
            raising(ModuleNotFoundError("No module named 'no_package.part'", name="no_package.part")),
            2,
            "error: package no_package is not installed, and this command needs it: install it, or all packages of "
            "pyproject.toml (pip install .)\n",
        ),
    ],
)
def test_a_main_returns_its_exit_code_and_says_one_line(
    does: Callable[[], int | None], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_that(does)([]) == code
    assert capsys.readouterr() == ("", said)


def test_a_terminated_job_returns_143() -> None:
    stopping.terminated.set()
    try:
        assert main_that(raising(KeyboardInterrupt()))([]) == 143
    finally:
        stopping.terminated.clear()


def test_other_errors_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        main_that(lambda: 1 // 0)([])
    for name in ("pipeline.no_part", "torch.no_part"):
        with pytest.raises(ModuleNotFoundError):
            main_that(raising(ModuleNotFoundError(f"No module named {name!r}", name=name)))([])


def test_a_main_sets_what_torch_reads_and_keeps_what_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "")
    monkeypatch.delenv("LRU_CACHE_CAPACITY")
    seen: list[str | None] = []
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    main_that(lambda: seen.extend(map(os.environ.get, names)))([])
    assert seen == ["7", "128"]


def test_a_submitted_job_first_says_how_to_stop_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "RAY_JOB_CONFIG_JSON_ENV_VAR"
    for metadata, said in (
        (
            '{"job_submission_id": "raysubmit_1"}',
            "Ray job raysubmit_1: Ctrl-C leaves it running; to stop it: ray job stop raysubmit_1\n",
        ),
        ('{"job_submission_id": "pretrain-1", "stopped_by": "Ctrl-C"}', ""),
    ):
        monkeypatch.setenv(name, f'{{"runtime_env": {{}}, "metadata": {metadata}}}')
        main = main_that(lambda: print("step 1"))
        assert job_main(stopped="stopped")(main)([]) == 0  # as in `bertstream JOB`
        assert capsys.readouterr().out == f"{said}step 1\n"
