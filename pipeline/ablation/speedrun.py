"""Results of a speedrun: what its rules ask, and the table of its seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.ablation.table import NONE
from pipeline.command_line.columns import aligned
from pipeline.config.ablate import INTERVAL_SEEDS
from pipeline.config.speedrun import MOST_EPOCHS, MOST_WORDS, OVER
from pipeline.corpus.prepared import Corpus, read_window
from pipeline.errors import ConfigError
from pipeline.evaluation.minimal_pairs.paradigms import PARADIGMS, Paradigm
from pipeline.evaluation.paired import over_seeds
from pipeline.files import storage
from pipeline.files.locations import is_url

HEADS = ("seed", "steps", "tokens", "epoch", "training min", "bits per byte", "BLiMP even", "BLiMP whole")
DIGITS = (1, 3, 1, 1)
"""Decimals of the last four columns."""


@dataclass(frozen=True, kw_only=True)
class Lap:
    """One seed of a speedrun."""

    seed: int
    steps: int
    tokens: int
    epoch: int
    """Epoch of the last step, from 1."""
    seconds: float
    """From the first step to the last, compilation included, evaluations not."""
    bits_per_byte: float | None
    """Bits per byte of held-out words; None if the text is too small for a held-out part."""
    even: float
    """Accuracy on BLiMP's even pairs by pseudo-log-likelihood, from 0 to 1."""
    whole: float
    """The same on all pairs."""

    @property
    def cells(self) -> tuple[float | None, ...]:
        """Return what is averaged over seeds, as the table shows it: minutes, bits per byte, percent."""
        return (self.seconds / 60, self.bits_per_byte, 100 * self.even, 100 * self.whole)


def words_of(corpus: Corpus) -> int:
    """Return the number of words of a corpus, divided by white space, held-out text included."""
    return sum(
        len(text.split())
        for window in (*corpus.train, *corpus.heldout)
        for text in read_window(corpus, window)["text"].to_pylist()
    )


def require_text(text: str) -> None:
    """Raise ConfigError if there is no such file or folder on this machine; URLs are not asked."""
    if not is_url(text) and not storage.exists(text):
        raise ConfigError(f"text ({text}) does not exist: name a file or folder of at most {MOST_WORDS:,} words")


def require_few_words(text: str, words: int) -> None:
    """Raise ConfigError if a text has more words than the rules allow."""
    if words > OVER * MOST_WORDS:
        raise ConfigError(
            f"text ({text}) has {words:,} words, and a speedrun's has at most {MOST_WORDS:,}: give less of it, or use "
            "jobs/pretrain.py, which has no such rule"
        )


def require_whole(blimp: str, paradigms: Sequence[Paradigm]) -> None:
    """Raise ConfigError if paradigms are not all of BLiMP's with all of their pairs."""
    if {paradigm.name for paradigm in paradigms} != set(PARADIGMS) or not all(each.whole for each in paradigms):
        raise ConfigError(
            f"blimp ({blimp}) is not the whole of BLiMP, on which a speedrun is scored: name a folder that does not "
            "exist yet to download it into, or use jobs/score.py for other minimal pairs"
        )


def lap_lines(laps: Sequence[Lap], words: int) -> list[str]:
    """Return the table of the seeds, their mean with its interval, and what the rules say; `words`: of the text."""
    rows = [_row(lap) for lap in laps]
    if len(laps) > 1:
        rows.append(["mean", "", "", "", *_texts(laps)])
    lines = aligned(HEADS, rows)
    enough = len(laps) >= INTERVAL_SEEDS
    lines += [
        "",
        f"{words:,} words. "
        + ("±: 95% interval over seeds." if enough else f"An interval needs {INTERVAL_SEEDS} seeds."),
    ]
    late = [str(lap.seed) for lap in laps if lap.epoch > MOST_EPOCHS]
    if late:
        lines.append(f"Not by the rules: seed {', '.join(late)} read the text more than {MOST_EPOCHS} times.")
    return lines


def _row(lap: Lap) -> list[str]:
    return [str(lap.seed), f"{lap.steps:,}", f"{lap.tokens:,}", str(lap.epoch), *_texts([lap])]


def _texts(laps: Sequence[Lap]) -> list[str]:
    """Return the means over seeds as text; with three seeds or more, with half the width of the 95% interval."""
    texts = []
    for column, digits in zip(zip(*(lap.cells for lap in laps), strict=True), DIGITS, strict=True):
        values = [value for value in column if value is not None]
        if len(values) < len(column):
            texts.append(NONE)
            continue
        mean = over_seeds([0.0] * len(values), values)
        around = f" ± {mean.high - mean.mean:.{digits}f}" if len(values) >= INTERVAL_SEEDS else ""
        texts.append(f"{mean.mean:.{digits}f}{around}")
    return texts
