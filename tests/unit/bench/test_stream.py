import pyarrow as pa
import pytest

from pipeline.bench.stream import plain_rate
from pipeline.config.bench import Stream, Text
from pipeline.config.data import Sampling
from pipeline.config.training import Batch
from pipeline.corpus.prepared import Corpus
from pipeline.corpus.stream import StreamSettings, window_rows
from pipeline.errors import ConfigError
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.vocabulary import Vocabulary


def test_rows_that_all_come_with_the_first_window_are_refused(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    settings = StreamSettings(
        corpus=tiny_corpus, vocabulary=tiny_vocabulary, sampling=Sampling(maximum_length=32), batch=Batch(), seed=0
    )
    first, second = (
        window_rows(settings, CachedTokenizer(tiny_vocabulary), tiny_corpus.train, 0, number) for number in range(2)
    )
    with pytest.raises(
        ConfigError,
        match=rf"^rows \(5\) must be above {first.num_rows}, the rows that are made before the clock starts$",
    ):
        plain_rate(settings, 5)
    assert plain_rate(settings, first.num_rows + 1).tokens == len(pa.concat_arrays(second["ids"].chunks).flatten())


def test_benches_need_something_to_measure() -> None:
    for name, make in (("windows", Text), ("rows", Stream), ("rows_per_slot", Stream)):
        with pytest.raises(ConfigError, match=rf"^{name} \(0\)"):
            make(**{name: 0})
