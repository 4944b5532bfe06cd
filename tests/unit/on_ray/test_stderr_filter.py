"""Lines that are left out of standard error, as Ray's C++ code writes them."""

import os

import pytest

from pipeline.on_ray.stderr_filter import lines_left_out


def test_so_many_lines_with_the_part_are_left_out_and_no_other(capfd: pytest.CaptureFixture[str]) -> None:
    with lines_left_out(b"restart will fail", most=2):
        os.write(2, b"E core_worker.cc:1: actor A: the actor restart will fail.\nan error\n")
        os.write(2, b"E core_worker.cc:1: actor B: the actor restart will fail.\n")
        os.write(2, b"another\nC: the actor restart will fail.\nwithout an end")
    os.write(2, b", after it\n")
    said = capfd.readouterr().err
    assert sorted(said.splitlines()) == [
        "C: the actor restart will fail.",
        "an error",
        "another",
        "without an end, after it",
    ]


def test_all_lines_pass_if_the_line_never_comes_and_standard_error_is_given_back(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = os.fstat(2)
    with pytest.raises(ZeroDivisionError), lines_left_out(b"restart will fail", most=1):
        os.write(2, b"an error\n")
        raise ZeroDivisionError
    assert capfd.readouterr().err == "an error\n"
    assert os.fstat(2) == before
