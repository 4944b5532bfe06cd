import pytest

from pipeline.errors import DataError
from pipeline.files import retries
from pipeline.files.retries import with_retries


def test_a_stores_passing_error_is_tried_again_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "WAITS", (0.0, 0.0))
    errors = iter([OSError("AWS Error SLOW_DOWN during PutObject"), OSError("x AWS Error INTERNAL_FAILURE y")])

    def call() -> str:
        if error := next(errors, None):
            raise error
        return "done"

    assert with_retries(call) == "done"
    errors = iter([OSError("AWS Error UNKNOWN")] * 3)
    with pytest.raises(OSError, match="UNKNOWN"):
        with_retries(call)
    errors = iter([DataError("s3://b/x cannot be read: AWS Error UNKNOWN")])
    assert with_retries(call) == "done"
    errors = iter([FileNotFoundError("no such key"), OSError("AWS Error UNKNOWN")])
    with pytest.raises(FileNotFoundError):
        with_retries(call)
    assert isinstance(next(errors), OSError)
