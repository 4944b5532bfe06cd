"""Pretrain with an objective that also detects repeated tokens, continue the run, export the model, and use it."""

from dataclasses import replace
from pathlib import Path

import torch

from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Masked, Repeated
from pipeline.errors import ConfigError
from pipeline.evaluation.evaluate import baselines
from pipeline.objectives.repeated import repeated
from pipeline.saved.checkpoints import folder_of
from pipeline.saved.tensors import read_tensors
from pipeline.train.plan import parameters
from tests.conftest import TINY
from tests.rehearsals.steps import exported, losses, opened, pretrain, served, settings

words = ["objective:repeated", "--objective.weight", "2", "sampling.pairs:full-sentences", "--steps", "40"]
try:
    settings(Pretrain, words[:3], TINY)
    raise AssertionError("labelled pairs without a head")
except ConfigError as error:
    assert "makes pairs for a head that objective repeated does not have" in str(error), error

run = pretrain(words)
assert run.config.objective == Repeated(weight=2.0)
first, last = losses(run, "train/repeated_loss")
assert last < first - 0.02 and losses(run, "train/mlm_loss")[1] < losses(run, "train/mlm_loss")[0] - 0.2
logged, final = run.logged[1], run.logged[40]
assert abs(logged["train/loss"] - logged["train/mlm_loss"] - 2 * logged["train/repeated_loss"]) < 1e-4
work = run.training.work(run.config, Path("again"), {})
module = run.training.module(run.config)
guesses = baselines(module, work.heldout, torch.ones(run.training.vocabulary.size).numpy(), 1)
assert final["heldout/repeated_accuracy"] > guesses["baseline/majority_repeated_accuracy"], (final, guesses)
assert parameters(run.config) - parameters(replace(run.config, objective=Masked())) == run.config.model.width + 1
batch = work.heldout[0]  # the original ids of its first sequence, against a count of each
ids = batch.ids_T.index_put((batch.masked_positions_M,), batch.masked_labels_M)[: batch.offsets[1]].tolist()
assert repeated(batch)[: len(ids)].tolist() == [ids.count(id) > 1 for id in ids]

saved = read_tensors(f"{folder_of(run.folder, 40)}/model.safetensors")
module, _, state = run.training.start(run.config, Path(run.folder))  # what a continued run begins with
assert state.step == 40 and torch.equal(module.repeated_head.weight, saved["repeated.weight"])

folder = exported(run.folder)
card = Path(f"{folder}/README.md").read_text()
assert "masked-language modelling and repeated-token detection" in card
guess, text = opened(folder).fill("kar [MASK] lond", top=1)[0][0], "kar [MASK] lond"
assert served(folder).answer("fill", [text], top=1)[0][0][0]["token_str"] == guess["token"]
