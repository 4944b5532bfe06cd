"""Choose a preset on the command line, also its variant without attention dropout, and train a part of it."""

from dataclasses import replace

from pipeline.presets.table import ABOUT_PRESETS, PRESETS, as_toml, split_preset
from tests.conftest import TINY
from tests.rehearsals.steps import losses, pretrain

name, words = split_preset(["bert-nano", "--steps", "30"])
preset = PRESETS[str(name)]
assert (preset.model.layers, preset.model.width, preset.vocabulary.size) == (1, 64, 8_192)
assert PRESETS["bert-nano-fast"] == replace(preset, model=replace(preset.model, attention_dropout=0.0))
assert "bert-nano" in ABOUT_PRESETS and as_toml(preset, "bert-nano").startswith('preset = "bert-nano"')

small = replace(preset, **{part: getattr(TINY, part) for part in ("sampling", "batch", "evaluation", "tracking")})
run = pretrain(words, small)
assert run.config.model.width == 64 and run.config.optimizer.learning_rate == 3e-3
first, last = losses(run, "train/mlm_loss")
assert last < first - 0.1, (first, last)
