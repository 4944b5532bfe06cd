"""What the jobs that read a corpus say of its options."""

import pytest

from jobs import prepare, pretrain
from pipeline.corpus.formats import FORMATS
from pipeline.corpus.sources import KEYS


@pytest.mark.parametrize("main", [prepare.main, pretrain.main], ids=["prepare", "pretrain"])
def test_every_format_and_option_of_a_corpus_is_in_the_help(main, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert ended.value.code == 0
    assert [name for name in FORMATS if name != "builtin" and name not in text] == []
    assert [key for key in KEYS if f"::{key}=" not in text] == []
