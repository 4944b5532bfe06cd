"""Replaced tokens: terms, weights and gradients by hand, samples that are the same everywhere, and held-out scores."""

import math
import re
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.batch import Batch
from pipeline.config.model import Model
from pipeline.config.objective import Replaced, generator_share
from pipeline.config.training import AdamW
from pipeline.errors import CheckpointError, ConfigError
from pipeline.evaluation.evaluate import evaluate
from pipeline.objectives.replaced import ReplacedTokens
from pipeline.objectives.terms import divisors
from pipeline.optim.build import build_optimizer
from pipeline.presets.electra import ELECTRA_PRESETS
from pipeline.train.meter import training_metrics
from pipeline.train.step import StepContext, backward
from tests.unit.objectives.batches import VOCABULARY_SIZE, make_batch

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = Model(family="electra", layers=2, width=16, heads=4, feed_forward=32, maximum_positions=40)
PLAIN = torch.autocast("cpu", enabled=False)
CPU = torch.device("cpu")


def make_model(seed: int = 0, settings: Model = SETTINGS, objective: Replaced = Replaced()) -> ReplacedTokens:  # noqa: B008
    return ReplacedTokens(settings, VOCABULARY_SIZE, objective, torch.Generator().manual_seed(seed))


def sampling(module: ReplacedTokens, entries: Tensor) -> ReplacedTokens:
    """Make the generator certain of one entry for all positions."""
    with torch.no_grad():
        module.generator.masked_token_head.bias.fill_(-1e4)
        module.generator.masked_token_head.bias[entries] = 1e4
    return module


def test_counts_are_masked_positions_and_all_tokens() -> None:
    module, batch = make_model().eval(), make_batch([6, 9, 12])
    terms = module(batch)
    assert {name: count for name, (_, count) in terms.items()} == {"mlm": 9, "replaced": 27} == module.counts(batch)
    assert tuple(terms) == module.terms
    assert all(total.dtype == torch.float32 and total.shape == () for total, _ in terms.values())


def test_first_losses_are_those_of_guessing() -> None:
    terms = make_model().eval()(make_batch([40] * 20))
    assert (terms["mlm"][0] / terms["mlm"][1]).item() == pytest.approx(math.log(VOCABULARY_SIZE), rel=0.01)
    assert (terms["replaced"][0] / terms["replaced"][1]).item() == pytest.approx(math.log(2), rel=0.02)


def test_a_sample_equal_to_the_original_counts_as_original() -> None:
    module, batch = sampling(make_model().eval(), torch.tensor(7)), make_batch([6, 9])  # masked: 0, 3, 6, 9, 12
    batch.masked_labels_M.copy_(torch.tensor([7, 8, 7, 9, 100]))
    ids = batch.ids_T.clone()
    seen = replace(batch, ids_T=ids.index_fill(0, batch.masked_positions_M, 7))
    logits = module.replaced_logits(seen)
    # -log(1 - p) of originals, -log p of the replaced tokens at 3, 9 and 12.
    expected = sum(F.softplus(-x if place in (3, 9, 12) else x) for place, x in enumerate(logits))
    torch.testing.assert_close(module(batch)["replaced"][0], expected)
    assert torch.equal(batch.ids_T, ids), "the batch itself stays as it is"
    share, count = module.scores(batch)["replaced_share"]
    assert (share.item(), count) == (3, 15)


def test_the_generator_sees_masks_and_the_discriminator_samples() -> None:
    module, batch = sampling(make_model().eval(), torch.tensor(7)), make_batch([6, 9])
    before = module(batch)
    other = replace(batch, ids_T=batch.ids_T.index_fill(0, batch.masked_positions_M, 3))
    after = module(other)
    assert torch.equal(before["replaced"][0], after["replaced"][0])
    assert not torch.equal(module.predict_masked(batch), module.predict_masked(other))


def test_samples_depend_on_the_seed_alone() -> None:
    module, batch = make_model(), make_batch([40] * 5)

    def losses(seed: int) -> list[float]:
        torch.manual_seed(seed)
        return [total.item() for total, _ in module(batch).values()]

    assert losses(1) == losses(1) != losses(2)


def test_weights_by_hand() -> None:
    assert make_model().weights == {"replaced": 50.0}
    assert divisors({"mlm": 9, "replaced": 30}, {"replaced": 50.0}) == {"mlm": 9, "replaced": 0.6}
    total = {"sum.mlm": 18.0, "count.mlm": 9, "sum.replaced": 15.0, "count.replaced": 30}
    total |= {"tokens": 1, "seconds": 1, "steps": 1, "wait_seconds": 0}
    shown = training_metrics(total, {"replaced": 50.0})
    # 18 / 9 + 50 x 15 / 30
    assert (shown["train/mlm_loss"], shown["train/replaced_loss"], shown["train/loss"]) == (2.0, 0.5, 27.0)


def test_gradients_are_those_of_the_weighted_sum_of_means() -> None:
    settings = replace(SETTINGS, hidden_dropout=0.0, attention_dropout=0.0)
    batch, module, plain = make_batch([6, 9, 12]), make_model(settings=settings), make_model(settings=settings)
    seen: list[Batch] = []
    module.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    compute = StepContext(device=CPU, autocast=PLAIN, seed=0)
    sums = backward(module, [(0, batch)], divisors(module.counts(batch), module.weights), compute, step=0)
    # Both losses as the paper writes them, on the samples of that step.
    states_M = plain.generator.encoder(batch)[batch.masked_positions_M]
    masked = F.cross_entropy(plain.generator.masked_token_head(states_M, plain.words), batch.masked_labels_M)
    originals_T = batch.ids_T.index_copy(0, batch.masked_positions_M, batch.masked_labels_M)
    logits_T = plain.replaced_logits(seen[0])
    replaced = F.binary_cross_entropy_with_logits(logits_T, (seen[0].ids_T != originals_T).float())
    (masked + 50 * replaced).backward()
    assert sums["mlm"].item() == pytest.approx(9 * masked.item(), rel=1e-6)
    assert sums["replaced"].item() == pytest.approx(27 * replaced.item(), rel=1e-6)
    for (name, found), wanted in zip(module.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad, msg=name)


def test_no_gradient_passes_through_the_samples() -> None:
    module, batch = make_model(), make_batch([6, 9, 12])
    own = dict(module.named_parameters())
    module(batch)["replaced"][0].backward()
    with_gradient = {name for name, parameter in own.items() if parameter.grad is not None and parameter.grad.any()}
    assert not [name for name in with_gradient if name.startswith("generator.")]
    assert all(name in with_gradient for name in own if name.startswith(("encoder.layers", "replaced_token_head")))
    from_discriminator = module.words.grad.clone()
    module.zero_grad()
    module(batch)["mlm"][0].backward()
    with_gradient = {name for name, parameter in own.items() if parameter.grad is not None and parameter.grad.any()}
    assert not [name for name in with_gradient if name.startswith(("encoder.layers", "replaced_token_head"))]
    assert all(name in with_gradient for name in own if name.startswith("generator."))
    assert (
        from_discriminator.any() and module.words.grad.any() and not torch.equal(from_discriminator, module.words.grad)
    )


def test_embeddings_are_one_object_counted_once() -> None:
    module = make_model()
    assert module.generator.encoder.embeddings is module.encoder.embeddings
    generator = module.generator
    alone = sum(
        p.numel() for part in (generator.encoder.layers, generator.encoder.projection) for p in part.parameters()
    )
    head = sum(p.numel() for p in generator.masked_token_head.parameters())
    discriminator = sum(p.numel() for part in (module.encoder, module.replaced_token_head) for p in part.parameters())
    assert sum(p.numel() for p in module.parameters()) == discriminator + alone + head
    optimizer = build_optimizer(AdamW(), module)
    optimised = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert len(optimised) == len({id(p) for p in optimised}) == len(list(module.parameters()))
    assert not [name for name, _ in module.named_parameters() if name.startswith("generator.encoder.embeddings")]


def test_the_generator_is_a_narrower_model_over_the_same_embeddings() -> None:
    generator = make_model().generator.encoder.settings
    assert (generator.layers, generator.width, generator.heads, generator.feed_forward) == (2, 4, 1, 8)
    assert (generator.embedded_width, generator.embedding_width) == (16, 16)
    whole = make_model(objective=Replaced(generator_share=1.0)).generator.encoder
    assert whole.settings == SETTINGS and isinstance(whole.projection, torch.nn.Identity)


def test_a_generator_of_another_kind_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^objective.generator_share \(1.5\) must be above 0 and at most 1: "):
        Replaced(generator_share=1.5)
    for share in (0.0, -0.25):
        with pytest.raises(ConfigError, match=re.escape(f"objective.generator_share ({share}) must be above 0")):
            Replaced(generator_share=share)
    with pytest.raises(ConfigError, match=r"^objective.weight \(0.0\) must be above 0$"):
        Replaced(weight=0.0)
    with pytest.raises(ConfigError) as refused:  # 0.7 x 16 = 11, 0.7 x 4 = 3
        make_model(objective=Replaced(generator_share=0.7))
    assert str(refused.value) == (
        "objective.generator_share (0.7) gives a generator of width 11 with 3 heads, but the width must be a multiple "
        "of the heads: model.width is 16, model.heads 4; choose another share"
    )


def test_a_module_of_two_published_models() -> None:
    made = make_model()
    generator = made.generator.encoder.settings
    assert ReplacedTokens.of(SETTINGS, generator, VOCABULARY_SIZE).state_dict().keys() == made.state_dict().keys()
    for wrong in (replace(generator, layers=3), replace(SETTINGS, width=32), replace(generator, feed_forward=10)):
        with pytest.raises(CheckpointError, match=r"^generator: a generator of width \d+ and \d+ layers does not fit"):
            ReplacedTokens.of(SETTINGS, wrong, VOCABULARY_SIZE)


@pytest.mark.parametrize("preset", ELECTRA_PRESETS)
def test_a_share_is_found_for_every_generator_of_a_share(preset: str) -> None:
    model, accepted = ELECTRA_PRESETS[preset].model, set()
    for number in range(1, 1001):
        with suppress(ConfigError):
            accepted.add(Replaced(generator_share=number / 1000).generator_of(model))
    assert len(accepted) > 100 and model in accepted
    for generator in accepted:
        found = generator_share(model, generator)
        assert found is not None
        Replaced(generator_share=found).require_generator(model, generator, "MODEL")


def test_a_generator_whose_sizes_were_rounded_is_loaded_and_named() -> None:
    model = ELECTRA_PRESETS["electra-tiny"].model
    generator = Replaced(generator_share=0.3).generator_of(model)
    # 0.3 x 128 = 38.4 and 0.3 x 512 = 153.6, but 38 / 128 x 512 = 152
    assert (generator.width, generator.feed_forward) == (38, 154)
    assert ReplacedTokens.of(model, generator, VOCABULARY_SIZE).generator.encoder.settings == generator
    with pytest.raises(ConfigError, match=r"has 38: set objective.generator_share 0.3$"):
        Replaced().require_generator(model, generator, "MODEL")
    with pytest.raises(ConfigError, match=r"has 300: no share gives its sizes, choose another init$"):
        Replaced(generator_share=0.3).require_generator(model, replace(generator, feed_forward=300), "MODEL")


def test_held_out_scores_by_hand() -> None:
    module, batch = sampling(make_model().eval(), torch.tensor(7)), make_batch([6, 9])
    batch.masked_labels_M.copy_(torch.tensor([7, 8, 7, 9, 100]))  # 3, 9 and 12 are replaced
    with torch.no_grad():
        module.replaced_token_head.score.weight.zero_()
        module.replaced_token_head.score.bias.fill_(1.0)  # says "replaced" of every token
    scores = {name: (float(total), int(count)) for name, (total, count) in module.scores(batch).items()}
    assert set(scores) == set(module.score_names)
    assert scores["mlm_accuracy"] == (2, 5)
    assert scores["replaced_accuracy"] == (3, 15) and scores["replaced_recall"] == (3, 3)
    assert scores["replaced_share"] == (3, 15)
    # 3 x log(1 + e^-1) + 12 x log(1 + e)
    assert scores["replaced"][0] == pytest.approx(3 * math.log1p(math.exp(-1)) + 12 * math.log1p(math.e), rel=1e-5)
    means = module.heldout(scores)
    assert means["replaced_recall"] == 1 and means["replaced_share"] == means["replaced_accuracy"] == pytest.approx(0.2)
    with torch.no_grad():
        module.replaced_token_head.score.bias.fill_(-1.0)  # says "original" of every token
    never = {name: (float(total), int(count)) for name, (total, count) in module.scores(batch).items()}
    assert never["replaced_accuracy"] == (12, 15) and never["replaced_recall"] == (0, 3)


def test_recall_without_replaced_tokens_is_left_out() -> None:
    assert "replaced_recall" not in make_model().heldout({"replaced_recall": (0.0, 0.0), "replaced": (3.0, 6.0)})


def test_evaluations_have_the_same_samples_and_disturb_no_generator() -> None:
    module, batches = make_model(), [make_batch([40, 30], seed) for seed in range(3)]

    def found(batches: list[Batch]) -> dict[str, float]:
        return evaluate(module, batches, world=1, device=CPU, autocast=PLAIN)

    torch.manual_seed(5)
    state, first = torch.get_rng_state(), found(batches)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    assert found(batches) == first
    assert module.training


def test_the_ranks_of_a_world_have_the_samples_of_one() -> None:
    module, batches = make_model().eval(), [make_batch([40, 30], seed) for seed in range(3)]
    whole = [module.scores(batch)["replaced"][0].item() for batch in batches]
    assert [module.scores(batch)["replaced"][0].item() for batch in batches[1::2]] == whole[1::2]
    assert [module.scores(batch)["replaced"][0].item() for batch in batches[0::2]] == whole[0::2]
    assert len(set(whole)) == 3
