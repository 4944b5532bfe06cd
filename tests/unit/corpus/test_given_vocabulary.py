"""A vocabulary that is given, and settings that would only shape a trained one."""

from pathlib import Path

import pytest

from pipeline.config.data import VocabularySettings
from pipeline.corpus.given_vocabulary import given_vocabulary
from pipeline.errors import ConfigError
from pipeline.presets.table import PRESETS


@pytest.fixture
def path(tmp_path: Path) -> str:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    return str(tmp_path / "vocab.txt")


@pytest.mark.parametrize(("setting", "value"), [("size", 5000), ("unused", 10)])
def test_what_shapes_a_trained_vocabulary_is_refused_beside_a_given_one(path: str, setting: str, value: int | str):
    with pytest.raises(ConfigError) as refused:
        given_vocabulary(VocabularySettings(path=path, lowercase=True, **{setting: value}))
    assert (
        str(refused.value)
        == f"vocabulary.{setting} ({value}) is for training a vocabulary, but vocabulary.path ({path}) names an "
        "existing one: leave one of the two settings out"
    )
    assert given_vocabulary(VocabularySettings(**{setting: value})) is None


def test_the_kinds_and_sizes_of_presets_are_not_refused(path: str):
    for kind, size in {(preset.vocabulary.kind, preset.vocabulary.size) for preset in PRESETS.values()}:
        found = given_vocabulary(VocabularySettings(path=path, lowercase=True, kind=kind, size=size))
        assert found is not None and found.size == 7


def test_settings_complete_a_given_vocabulary(tmp_path: Path) -> None:
    assert given_vocabulary(VocabularySettings()) is None
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nä\n")
    settings = VocabularySettings(path=str(tmp_path), lowercase=True, strip_accents=False, chinese_characters=False)
    given = given_vocabulary(settings)
    assert given and (given.strip_accents, given.chinese_characters) == (False, False)
    (tmp_path / "tokenizer_config.json").write_text('{"strip_accents": true}')
    with pytest.raises(
        ConfigError,
        match=r"^vocabulary.strip_accents \(False\) differs from .* \(True\): leave "
        r"vocabulary.strip_accents out, or set it to True",
    ):
        given_vocabulary(settings)
