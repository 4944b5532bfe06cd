"""Gradient-disentangled embedding sharing: gradients, start, published sums, and exact checkpoints."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipeline.config.model import Model
from pipeline.config.objective import Replaced
from pipeline.config.training import AdamW
from pipeline.errors import ConfigError
from pipeline.export.trained import load_trained
from pipeline.objectives.replaced import ReplacedTokens
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.saved.tensors import read_tensors
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary
from pipeline.train import checkpoint
from pipeline.train.checkpoint import State
from pipeline.train.step import StepContext, backward
from tests.unit.objectives.batches import VOCABULARY_SIZE, make_batch

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = Model(family="electra", layers=2, width=16, heads=4, feed_forward=32, maximum_positions=40)
OBJECTIVE = Replaced(generator_share=1.0, generator_depth=0.5, embedding_sharing="gradient-disentangled")
WORDS = "encoder.embeddings.words.weight"
ENTRIES = tuple(f"w{number}" for number in range(VOCABULARY_SIZE - len(SPECIALS)))
VOCABULARY = Vocabulary(tokens=(*SPECIALS, *ENTRIES), lowercase=True)


def make_model(seed: int = 0) -> ReplacedTokens:
    return ReplacedTokens(SETTINGS, VOCABULARY_SIZE, OBJECTIVE, torch.Generator().manual_seed(seed))


def trained(steps: int = 3) -> tuple[ReplacedTokens, torch.optim.Optimizer]:
    module = make_model()
    optimizer = build_optimizer(AdamW(learning_rate=0.01), module)
    for step in range(steps):
        one_step(module, optimizer, step)
    return module, optimizer


def one_step(module: ReplacedTokens, optimizer: torch.optim.Optimizer, step: int) -> dict[str, float]:
    batch = make_batch([6, 9, 12], seed=step)
    compute = StepContext(device=torch.device("cpu"), autocast=torch.autocast("cpu", enabled=False), seed=0)
    optimizer.zero_grad()
    sums = backward(module, [(0, batch)], divisors(module.counts(batch), module.weights), compute, step=step)
    optimizer.step()
    return {name: total.item() for name, total in sums.items()}


def test_each_loss_has_its_own_word_embeddings() -> None:
    module, batch = make_model(), make_batch([6, 9, 12])
    module(batch)["replaced"][0].backward()
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    assert all(gradient is None for name, gradient in gradients.items() if name.startswith("generator."))
    assert gradients[WORDS].abs().sum() > 0
    module.zero_grad(set_to_none=True)
    module(batch)["mlm"][0].backward()
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    assert all(gradient is None for name, gradient in gradients.items() if not name.startswith("generator."))
    assert gradients[f"generator.{WORDS}"].abs().sum() > 0


def test_both_models_start_with_the_same_words_and_the_table_follows_the_generator() -> None:
    module, ids = make_model(), torch.arange(VOCABULARY_SIZE)
    generator = module.generator.encoder.embeddings
    assert not module.encoder.embeddings.words.weight.any()
    assert torch.equal(module.encoder.embeddings.words(ids), generator.words.weight)
    with torch.no_grad():
        generator.words.weight.fill_(2.0)
        module.encoder.embeddings.words.weight.fill_(0.5)
    assert (module.encoder.embeddings.words(ids) == 2.5).all() and module.words is generator.words.weight
    assert module.encoder.embeddings.norm is not generator.norm


def test_the_generator_has_the_share_of_the_layers() -> None:
    settings = replace(SETTINGS, layers=12)
    assert [Replaced(generator_depth=share).generator_of(settings).layers for share in (1, 0.5, 0.2, 0.01)] == [
        12,
        6,
        2,
        1,
    ]
    for depth in (0.0, 1.5):
        with pytest.raises(
            ConfigError, match=rf"^objective.generator_depth \({depth}\) must be above 0 and at most 1: "
        ):
            Replaced(generator_depth=depth)


def test_a_checkpoint_holds_the_sum_and_resumes_with_the_same_losses(tmp_path: Path) -> None:
    module, optimizer = trained()
    folder = checkpoint.save(str(tmp_path), State(step=3), module, optimizer, VOCABULARY)
    state = module.state_dict()
    published = read_tensors(f"{folder}/model.safetensors")["electra.embeddings.word_embeddings.weight"]
    assert torch.equal(published, state[WORDS] + state[f"generator.{WORDS}"]) and state[WORDS].any()
    other = make_model(seed=1)
    other_optimizer = build_optimizer(AdamW(learning_rate=0.01), other)
    checkpoint.load(folder, other, other_optimizer)
    assert all(torch.equal(found, state[name]) for name, found in other.state_dict().items())
    assert one_step(other, other_optimizer, 3) == one_step(module, optimizer, 3)


def test_without_the_optimiser_the_table_is_the_difference(tmp_path: Path) -> None:
    module, optimizer = trained()
    folder = checkpoint.save(str(tmp_path), State(step=3), module, optimizer, VOCABULARY)
    other = make_model(seed=1)
    checkpoint.load(folder, other, None)
    torch.testing.assert_close(other.state_dict()[WORDS], module.state_dict()[WORDS], atol=1e-7, rtol=0)
    loaded, batch = load_trained(folder).module, make_batch([6, 9, 12])
    module.eval()
    assert isinstance(loaded, ReplacedTokens) and type(loaded.encoder.embeddings.words) is torch.nn.Embedding
    for name, logits in module.outputs(batch).items():
        torch.testing.assert_close(loaded.outputs(batch)[name], logits)
