"""Train with a rate that falls with the root of the step, and see the rates that were logged."""

import math

from tests.rehearsals.steps import losses, pretrain

run = pretrain(["schedule:inverse-root", "--schedule.warmup_steps", "4", "--steps", "30"])
peak = run.config.optimizer.learning_rate
rates = [metrics["train/learning_rate"] for _, metrics in sorted(run.logged.items()) if "train/loss" in metrics]
assert len(rates) == 30
for step, rate in enumerate(rates, 1):
    assert math.isclose(rate, peak * (step / 4 if step <= 4 else math.sqrt(4 / step)), rel_tol=1e-6), (step, rate)
first, last = losses(run, "train/mlm_loss")
assert last < first - 0.1
