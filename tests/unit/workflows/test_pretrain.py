"""Which corpus a run trains on, where it is prepared already."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.data import Preparation, Sampling, SingleSegment
from pipeline.config.jobs import Pretrain
from pipeline.corpus.prepared import Corpus, is_prepared
from pipeline.errors import CheckpointError, ConfigError, PipelineError
from pipeline.reporting import Report
from pipeline.train.run_data import find_corpus, prepared_corpus
from pipeline.train.start import os_errors_as_checkpoint_error
from pipeline.workflows.pretrain import pretrain


@pytest.fixture
def prepared(tiny_corpus: Corpus, tmp_path: Path) -> str:
    """The tiny corpus with a manifest; it says that all of it is one document."""
    windows = {
        split: [list(vars(window).values()) for window in getattr(tiny_corpus, split)] for split in ("train", "heldout")
    }
    about = {"fingerprint": tiny_corpus.fingerprint, "counts": {"documents": 1}, "dropped": {}, "sources": {}}
    shutil.copytree(tiny_corpus.folder, tmp_path / "corpus", ignore=shutil.ignore_patterns("manifest.json"))
    (tmp_path / "corpus" / "manifest.json").write_text(json.dumps(windows | about))
    return str(tmp_path / "corpus")


def corpus_of(config: Pretrain, report: Report) -> Corpus:
    return prepared_corpus(config, find_corpus(config, report), report)


def test_a_prepared_folder_is_trained_on_as_it_is(prepared: str, tiny_corpus: Corpus, tiny_config: Pretrain) -> None:
    lines: list[str] = []
    found = corpus_of(
        replace(tiny_config, corpus=(prepared,), sampling=Sampling(maximum_length=32, pairs=SingleSegment())),
        lines.append,
    )
    assert (found.folder, found.fingerprint, found.train, lines) == (
        prepared,
        tiny_corpus.fingerprint,
        tiny_corpus.train,
        [],
    )


def test_its_settings_of_preparation_stay(prepared: str, tiny_config: Pretrain) -> None:
    with pytest.raises(ConfigError, match="is prepared already: leave out the prepare settings"):
        corpus_of(replace(tiny_config, corpus=(prepared,), prepare=Preparation(heldout_share=0.02)), print)


def test_one_document_is_no_corpus_of_pairs(prepared: str, tiny_config: Pretrain) -> None:
    lines: list[str] = []
    corpus_of(replace(tiny_config, corpus=(prepared,)), lines.append)
    assert len(lines) == 1 and lines[0].startswith(
        "note: the corpus is one document, so no segment B can come from another document (NotNext)"
    )


def test_other_folders_are_sources(tmp_path: Path) -> None:
    assert (
        not is_prepared(str(tmp_path))
        and not is_prepared("builtin")
        and not is_prepared("https://example.org/a.txt")
        and not is_prepared(f"{tmp_path}/a::weight=2")
    )
    (tmp_path / "manifest.json").write_text('["of something else"]')
    assert not is_prepared(str(tmp_path))


def test_what_needs_no_ray_is_refused_before_it_is_asked_for(
    prepared: str, tiny_config: Pretrain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # another test of this session may have started one
    config = replace(tiny_config, corpus=(prepared,), output=str(tmp_path / "o"), name="a")
    for changed, words in (
        (
            {"vocabulary": replace(config.vocabulary, path="nope.txt")},
            r"^vocabulary\.path \(/.*/nope\.txt\) does not exist",
        ),
        ({"corpus": (str(tmp_path / "none.txt"),)}, r"none\.txt: no such file or folder"),
        ({"prepare": Preparation(heldout_share=0.02)}, "is prepared already: leave out the prepare settings"),
        ({}, r"^RAY_ADDRESS \(127\.0\.0\.1:9\) does not answer"),
    ):
        with pytest.raises(PipelineError, match=words):
            pretrain(replace(config, **changed), print)


def test_driver_write_errors_become_checkpoint_errors_and_ray_errors_do_not() -> None:
    config = Pretrain(name="a", output="/full")
    with pytest.raises(CheckpointError) as refused, os_errors_as_checkpoint_error(config):
        raise OSError(28, "No space left on device")
    assert (
        str(refused.value)
        == "a file of run a below /full cannot be read or written ([Errno 28] No space left on device); the "
        "same command continues from the newest checkpoint"
    )
    with pytest.raises(ConnectionError), os_errors_as_checkpoint_error(config):
        raise ConnectionError("the head is gone")
