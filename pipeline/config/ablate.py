"""Settings of an ablation: variants of one pretraining, each trained with several seeds and compared with the first."""

from dataclasses import dataclass

from pipeline.command_line.options import did_you_mean, nearest
from pipeline.config.ablations import ABLATIONS
from pipeline.config.checks import require, require_above_zero, require_at_least
from pipeline.config.jobs import Pretrain
from pipeline.config.length import number_of_tokens
from pipeline.config.locations import Location
from pipeline.config.measurements import Selection
from pipeline.config.recipe import Recipe
from pipeline.errors import ConfigError

COMMON = (
    *("over", "tokens", "minutes", "seeds", "at_once", "preset", "corpus", "vocabulary.path", "output"),
    *("blimp", "blimp_pairs", "task", "data", "tuning_seeds", "recipe.epochs", "placement.threads"),
)
"""Settings that --help shows first."""
INTERVAL_SEEDS = 3
"""Minimum seeds for an interval. With two seeds, the interval would extend nine standard deviations to either side."""


@dataclass(frozen=True, kw_only=True)
class Ablate(Pretrain):
    """Pretrain variants of one run, each with the same seeds, and compare them with the first variant."""

    ablation: str | None = None
    """Name of the ablation: the first word of the command. To compare other variants, set over instead."""
    preset: str = "bert-tiny"
    """Preset of the base run."""
    over: tuple[str, ...] = ()
    """NAME=VALUE,VALUE,…: a setting of pretraining and the values to compare. A value may be a kind, as in
    sampling.pairs=next-sentence,single-segment. If over is repeated, the first variant has the first value of every
    setting, and each other variant changes one setting of the first variant.
    """
    tokens: str | None = None
    """Tokens that each run is trained on, such as 250k, 10M or 20_000_000. The number of steps is computed from the
    lengths of the rows that the run reads.
    """
    minutes: float | None = None
    """Minutes of training per run, instead of tokens. A short run measures the speed of each variant to choose its
    number of steps, so nothing else may load the machine while the command runs.
    """
    seeds: int = 3
    """Pretraining runs per variant, with the seeds `seed`, `seed` + 1, and so on. Variants are compared
    by pairs of runs with the same seed.
    """
    at_once: int | None = None
    """Maximum number of runs that are trained at the same time; default: as many as fit. Runs on CPUs fit together only
    if placement.threads is set, because a run otherwise uses every core.
    """
    blimp: Location | None = None
    """Folder of BLiMP's files; every run is scored on BLiMP. If the folder does not exist, the files are downloaded
    into it (20 MB).
    """
    blimp_pairs: Selection = "even"
    """Pairs of blimp to score, by their numbers. fifth: a fifth of each paradigm, with odd numbers only. Choose
    settings by their score on odd pairs, and report the score on even pairs.
    """
    task: tuple[str, ...] = ()
    """Tasks on which every run is fine-tuned, by name, such as sst2."""
    data: Location | None = None
    """Folder of the tasks' files in their official layout."""
    tuning_seeds: int = 3
    """Fine-tunings per pretraining run and task; their mean score counts."""
    recipe: Recipe = Recipe()

    def __post_init__(self) -> None:
        _require_variants(self.ablation, self.over)
        _require_budget(self.tokens, self.minutes)
        require(
            self.name is None,
            f"name ({self.name}) is for one run: leave name out, "
            "because each run of an ablation is named after its settings",
        )
        require(self.epochs is None, f"epochs ({self.epochs}) is for one run: give tokens or minutes instead")
        require_at_least("seeds", self.seeds, 1)
        require(self.at_once is None or self.at_once >= 1, f"at_once ({self.at_once}) must be at least 1")
        require_at_least("tuning_seeds", self.tuning_seeds, 1)
        require(
            bool(self.task) == (self.data is not None) or self.task == ("builtin",),
            f"task ({', '.join(self.task) or 'none'}) and data ({self.data}), the folder of its files, belong "
            "together: give both",
        )
        require(
            "glue" not in self.task,
            "task (glue) is several tasks, each with scores of its own: name each, such as --task cola --task sst2",
        )
        super().__post_init__()

    @property
    def all_seeds(self) -> range:
        """Seeds of the pretraining runs of a variant."""
        return range(self.seed, self.seed + self.seeds)

    @property
    def budget(self) -> str:
        """Training budget per run, as a text: the number of tokens or minutes that all variants have."""
        return f"{self.tokens} tokens" if self.minutes is None else f"{self.minutes:g} minutes"

    @property
    def token_count(self) -> int | None:
        """Tokens per run; None if the budget is in minutes."""
        return None if self.tokens is None else number_of_tokens(self.tokens)


def _require_variants(ablation: str | None, over: tuple[str, ...]) -> None:
    """Raise ConfigError if both or neither of `ablation` and `over` are given, or if `ablation` is unknown."""
    names = ", ".join(ABLATIONS)
    require(
        (ablation is None) == bool(over),
        f"ablation ({ablation}) or over ({', '.join(over) or 'none'}): give exactly one, a name ({names}) as the first "
        "word, or --over NAME=VALUE,VALUE",
    )
    if ablation is not None and ablation not in ABLATIONS:
        near = did_you_mean(nearest(ablation, ABLATIONS))
        raise ConfigError(f"ablation ({ablation}) must be one of {names}{near}")


def _require_budget(tokens: str | None, minutes: float | None) -> None:
    """Raise ConfigError if both or neither of `tokens` and `minutes` are given, or if the value is invalid."""
    require(
        (tokens is None) != (minutes is None),
        f"tokens ({tokens}) or minutes ({minutes}): give exactly one; all variants get the same amount",
    )
    if tokens is not None:
        number_of_tokens(tokens)
    if minutes is not None:
        require_above_zero("minutes", minutes)
