"""Pictures of a finished run: the numbers that were drawn, read from the figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.jobs import Pretrain
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.stream import StreamSettings
from pipeline.show.run_end import CORPUS, LOSS, as_png, end_pictures
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.train.worker_summary import BY_FREQUENCY, measure_by_frequency
from tests.conftest import Training

SOURCES = {
    "books": {"characters": 75, "pieces": 8, "dropped": {"duplicate": 2}},
    "wiki": {"characters": 25, "pieces": 10, "dropped": {}},
}


def test_the_bars_add_up_to_the_held_out_loss(training: Training, tiny_config: Pretrain) -> None:
    """The worker's numbers, as they lie in the summary, are those of the bars."""
    module = training.module(tiny_config).eval()
    work = training.work(tiny_config, Path("/none"), {})
    stream = StreamSettings(
        corpus=training.corpus,
        vocabulary=training.vocabulary,
        sampling=tiny_config.sampling,
        batch=tiny_config.batch,
        seed=0,
    )
    records = measure_by_frequency(stream, work, module, CachedTokenizer(training.vocabulary))
    figure = end_pictures({"name": "a-run", BY_FREQUENCY: records}, training.corpus)[LOSS]
    (axes,) = figure.axes
    unigram, model = ([bar.get_height() for bar in bars] for bars in axes.containers[:2])
    counts = [record["counts"] for record in records]
    scores = [module.scores(batch)["mlm"] for batch in work.heldout]
    assert sum(counts) == sum(count for _, count in scores) > 0
    total = sum(float(loss) for loss, _ in scores)
    assert sum(height * count for height, count in zip(model, counts, strict=True)) == pytest.approx(total, rel=1e-5)
    assert unigram == [record["unigram"] for record in records]
    assert figure.get_suptitle() == "Held-out masked loss of a-run by frequency"


def test_the_corpus_of_a_run_without_held_out_rows(tiny_corpus: Corpus) -> None:
    corpus = replace(tiny_corpus, sources=SOURCES, dropped={"duplicate": 2}, counts={"characters": 100}, heldout=())
    pictures = end_pictures({"name": "a-run", BY_FREQUENCY: []}, corpus)
    assert list(pictures) == [CORPUS]
    sources, dropped = pictures[CORPUS].axes
    assert [bar.get_width() for bar in sources.patches] == [75, 25]
    assert [bar.get_width() for bar in dropped.patches] == pytest.approx([0.2, 0.0])
    assert as_png(pictures[CORPUS]).startswith(b"\x89PNG")
    assert pictures[CORPUS].get_suptitle() == "Corpus of a-run: 100 characters"
