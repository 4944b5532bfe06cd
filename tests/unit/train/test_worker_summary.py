"""Held-out losses by language, at the end of a run."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from pipeline.config.data import Sampling, TwoCrops
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Contrastive
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.stream import StreamSettings
from pipeline.evaluation.evaluate import evaluate
from pipeline.evaluation.heldout import heldout_batches, heldout_languages
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.job import Job
from pipeline.train.worker_summary import measure_languages

CPU = torch.device("cpu")


def in_languages(corpus: Corpus, folder: Path, every: int, only: str | None = None) -> Corpus:
    """The corpus with every n-th held-out document in German; `only` drops the documents of the other language."""
    shard = corpus.heldout[0].shard
    (folder / shard).parent.mkdir(parents=True)
    whole = pq.ParquetFile(f"{corpus.folder}/{shard}")
    with pq.ParquetWriter(folder / shard, whole.schema_arrow) as writer:
        for index in range(whole.num_row_groups):
            table = whole.read_row_group(index)
            codes = ["en" if row % every else "de" for row in range(table.num_rows)]
            table = table.set_column(table.schema.get_field_index("language"), table.schema.field("language"), [codes])
            writer.write_table(table if only is None else table.filter(pc.equal(table["language"], only)))
    return replace(corpus, folder=str(folder))


def job_of(config: Pretrain, corpus: Corpus, training: Any) -> Job:
    stream = StreamSettings(
        corpus=corpus, vocabulary=training.vocabulary, sampling=config.sampling, batch=config.batch, seed=0
    )
    nothing = {"initial": None, "words": None, "blimp": None, "tracker": cast(Any, None)}
    return Job(config=config, folder="", stream=stream, **nothing)


def test_each_language_has_the_loss_on_its_own_text(
    training: Any, tiny_config: Pretrain, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    module, tokenizer = training.module(tiny_config), CachedTokenizer(training.vocabulary)
    both = in_languages(tiny_corpus, tmp_path / "both", 3)
    assert heldout_languages(both, 40) == ["de", "en"]
    logged: dict[int, dict[str, float]] = {}
    work, phase = training.work(tiny_config, tmp_path, logged), tiny_config.phase_at(0)
    losses = measure_languages(job_of(tiny_config, both, training), work, module, phase, tokenizer, 7)
    assert list(losses) == ["de", "en"] and losses["de"] != losses["en"]
    for code in losses:
        alone = in_languages(tiny_corpus, tmp_path / code, 3, only=code)
        batches = heldout_batches(alone, tokenizer, phase.sampling, rows=40, rows_per_batch=4, rank=0, world=1)
        expected = evaluate(module, batches, world=1, device=CPU, autocast=work.autocast)
        assert losses[code] == pytest.approx(expected["heldout/mlm_loss"])
        assert logged[7][f"heldout_language/mlm_loss_{code}"] == losses[code]
    assert {name.split("/")[0] for name in logged[7]} == {"heldout_language"}


def test_contrastive_losses_are_not_measured_by_language(
    training: Any, tiny_config: Pretrain, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    config = replace(tiny_config, objective=Contrastive(), sampling=Sampling(maximum_length=32, pairs=TwoCrops()))
    logged: dict[int, dict[str, float]] = {}
    work, tokenizer = training.work(config, tmp_path, logged), CachedTokenizer(training.vocabulary)
    job = job_of(config, in_languages(tiny_corpus, tmp_path / "both", 3), training)
    assert measure_languages(job, work, training.module(config), config.phase_at(0), tokenizer, 7) == {}
    assert logged == {}


def test_one_language_is_not_measured_again(
    training: Any, tiny_config: Pretrain, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    logged: dict[int, dict[str, float]] = {}
    work, tokenizer = training.work(tiny_config, tmp_path, logged), CachedTokenizer(training.vocabulary)
    job = job_of(tiny_config, tiny_corpus, training)
    assert measure_languages(job, work, training.module(tiny_config), tiny_config.phase_at(0), tokenizer, 7) == {}
    assert logged == {}
