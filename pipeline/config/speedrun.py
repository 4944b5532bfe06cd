"""Settings of a speedrun: one small text, a few epochs, several seeds, and BLiMP."""

from dataclasses import dataclass, fields, replace
from typing import Any

from pipeline.config.checks import require, require_at_least
from pipeline.config.jobs import COMMON as OF_PRETRAINING
from pipeline.config.jobs import Pretrain
from pipeline.config.locations import Location
from pipeline.config.needs import MASKED_HEAD

COMMON = ("text", "blimp", "seeds", *(name for name in OF_PRETRAINING if name not in ("corpus", "init", "name")))
"""Settings that --help shows first."""
MOST_WORDS = 10_000_000
"""Words that a speedrun's text may have."""
OVER = 1.02
"""Factor on MOST_WORDS, because a text of whole files ends where a file ends."""
MOST_EPOCHS = 10
"""Times that a speedrun may read its text."""


@dataclass(frozen=True, kw_only=True)
class Speedrun(Pretrain):
    """Pretrain on 10 million words with several seeds, and score each model on BLiMP."""

    preset: str = "encoder-xs"
    """Preset of the runs: the first word of the command."""
    text: Location = ""
    """File or folder of at most 10 million words. Required."""
    blimp: Location = "output/blimp"
    """Folder of BLiMP's files. If the folder does not exist, the files are downloaded into it (20 MB)."""
    seeds: int = 3
    """Pretraining runs, one after the other, with the seeds `seed`, `seed` + 1, and so on."""

    def __post_init__(self) -> None:
        require(bool(self.text), "text is missing: name a file or folder of at most 10 million words with --text")
        require_at_least("seeds", self.seeds, 1)
        learnt = (("init", self.init), ("vocabulary.path", self.vocabulary.path))
        teacher = getattr(self.objective, "teacher", None)
        for name, given in (("corpus", self.corpus), ("name", self.name), *learnt, ("objective.teacher", teacher)):
            require(
                not given,
                f"{name} ({given if isinstance(given, str) else ', '.join(given or ())}) cannot be set in a speedrun: "
                "it learns from --text alone, and each run is named after its settings; leave it out",
            )
        require(
            MASKED_HEAD in self.objective.offers,
            f"objective ({type(self.objective).__name__}) trains no head for masked tokens, which BLiMP's scores need: "
            "leave it out",
        )
        most = f"must be at most {MOST_EPOCHS} in a speedrun: jobs/pretrain.py has no such rule"
        require((self.epochs or 0) <= MOST_EPOCHS, f"epochs ({self.epochs}) {most}")
        super().__post_init__()

    @property
    def runs(self) -> tuple[Pretrain, ...]:
        """The settings of the runs, one per seed, without names."""
        own: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(Pretrain)}
        own["corpus"] = (self.text,)
        run = Pretrain(**own)
        return tuple(replace(run, seed=seed) for seed in range(self.seed, self.seed + self.seeds))
