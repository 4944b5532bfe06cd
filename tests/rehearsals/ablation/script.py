"""Name an ablation on the command line, and see the settings of its variants."""

from pipeline.ablation.command import read_ablate
from pipeline.ablation.variants import ablation_name, variants_of

config = read_ablate(["warm-up", "--tokens", "1M"], "about")
first, second = variants_of(config)
assert (first.label, second.label) == ("1%", "20%, twice the rate")
assert (first.config.schedule.warmup_share, second.config.schedule.warmup_share) == (0.01, 0.2)
assert second.config.optimizer.learning_rate == 2 * first.config.optimizer.learning_rate
assert "warm-up" in ablation_name(config, (first, second))
