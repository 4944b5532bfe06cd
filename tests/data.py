"""Data that this repository does not hold: environment variables name it, and tests of it are skipped without them."""

import os

import pytest

NEEDS_DATA = "needs data: "
"""Beginning of the reasons of tests that are skipped for want of data, by which they are counted."""


def needs_data(*variables: str) -> pytest.MarkDecorator:
    """Skip a test unless all of these environment variables are set."""
    reason = f"{NEEDS_DATA}{' and '.join(variables)} in the environment"
    return pytest.mark.skipif(not all(map(os.environ.get, variables)), reason=reason)
