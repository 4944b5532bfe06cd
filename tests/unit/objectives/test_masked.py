import math

import pytest
import torch
import torch.distributed
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel

from pipeline.batch import MaskedBatch, SentenceOrderBatch
from pipeline.config.model import Model
from pipeline.objectives.masked import MaskedTokens
from tests.unit.objectives.batches import VOCABULARY_SIZE, make_batch, without_pairs

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = Model(layers=2, width=16, heads=2, feed_forward=32, maximum_positions=40)

PUBLISHED_COUNTS = {  # layers, width, heads -> with both heads at 30,522 entries, the tied matrix once
    (2, 128, 2): 4_433_468,
    (4, 256, 4): 11_267_900,
    (4, 512, 8): 29_058_876,
    (8, 512, 8): 41_668_412,
    (12, 768, 12): 110_106_428,
    (24, 1024, 16): 336_226_108,
}


def make_model(seed: int = 0) -> MaskedTokens:
    return MaskedTokens(SETTINGS, VOCABULARY_SIZE, torch.Generator().manual_seed(seed))


def loss(model, batch: MaskedBatch) -> torch.Tensor:
    return sum(total / count for total, count in model(batch).values())


def test_terms_are_sums_and_counts():
    model = make_model().eval()
    first, second, both = make_batch([6, 9], 1), make_batch([12], 2), make_batch([6, 9, 12])
    both.ids_T.copy_(torch.cat([first.ids_T, second.ids_T]))
    both.masked_labels_M.copy_(torch.cat([first.masked_labels_M, second.masked_labels_M]))
    both.not_next_N.copy_(torch.cat([first.not_next_N, second.not_next_N]))
    terms = model(both)
    assert {name: count for name, (_, count) in terms.items()} == {"mlm": 9, "nsp": 3}
    for name, (total, _) in terms.items():
        assert total.dtype == torch.float32 and total.shape == ()
        torch.testing.assert_close(total, model(first)[name][0] + model(second)[name][0])


def test_first_losses_are_those_of_guessing():
    terms = make_model().eval()(make_batch([40] * 20))
    assert (terms["mlm"][0] / terms["mlm"][1]).item() == pytest.approx(math.log(VOCABULARY_SIZE), rel=0.01)
    assert (terms["nsp"][0] / terms["nsp"][1]).item() == pytest.approx(math.log(2), rel=0.02)


def test_scores_are_the_losses_and_the_right_answers():
    model, batch = make_model().eval(), make_batch([6, 9, 12])
    predicted = model.predict_masked(batch)
    assert predicted.shape == (9, VOCABULARY_SIZE) and predicted.dtype == torch.float32
    batch.masked_labels_M[:4] = predicted.argmax(1)[:4]
    batch.masked_labels_M[4:] = predicted.argmin(1)[4:]
    with torch.no_grad():
        pair_logits = model.pair_logits(model.encoder(batch), batch)
    batch.not_next_N.copy_(pair_logits.argmax(1))
    batch.not_next_N[0] = 1 - batch.not_next_N[0]
    scores, terms = model.scores(batch), model(batch)
    assert scores.keys() == {"mlm", "nsp", "mlm_accuracy", "nsp_accuracy", "nsp_ones"}
    assert (scores["mlm_accuracy"][0].item(), scores["mlm_accuracy"][1]) == (4, 9)
    assert (scores["nsp_accuracy"][0].item(), scores["nsp_accuracy"][1]) == (2, 3)
    for name in terms:
        torch.testing.assert_close(scores[name][0], terms[name][0])
        assert scores[name][1] == terms[name][1]
        assert not scores[name][0].requires_grad


def test_pairs_that_may_be_swapped_are_scored_as_sentence_order():
    model, batch = make_model().eval(), make_batch([6, 9, 12])
    ordered = SentenceOrderBatch(**vars(without_pairs(batch)), swapped_N=batch.not_next_N)
    terms, scores = model(ordered), model.scores(ordered)
    assert {name: count for name, (_, count) in terms.items()} == {"mlm": 9, "sop": 3}
    assert scores.keys() == {"mlm", "sop", "mlm_accuracy", "sop_accuracy", "sop_ones"}
    torch.testing.assert_close(terms["sop"][0], model(batch)["nsp"][0])
    torch.testing.assert_close(scores["sop_accuracy"], model.scores(batch)["nsp_accuracy"])


def test_without_pairs_there_is_the_loss_of_masked_tokens_alone():
    batch = make_batch([6, 9, 12])
    single = without_pairs(batch)
    generator = torch.Generator().manual_seed(0)
    paired, model = make_model().eval(), MaskedTokens(SETTINGS, VOCABULARY_SIZE, generator, pairs=False).eval()
    terms = model(single)
    assert {name: count for name, (_, count) in terms.items()} == {"mlm": 9} == model.counts(single)
    assert model.scores(single).keys() == {"mlm", "mlm_accuracy"} == set(model.score_names)
    assert terms["mlm"][0] == paired(batch)["mlm"][0]  # the same first weights


def test_without_pairs_the_pooler_and_the_pair_head_are_not_built():
    model = MaskedTokens(SETTINGS, VOCABULARY_SIZE, pairs=False)
    absent = make_model().state_dict().keys() - model.state_dict().keys()
    pooler, head = ({f"{part}.weight", f"{part}.bias"} for part in ("encoder.pooler", "next_sentence_head"))
    assert absent == pooler | head
    loss(model, without_pairs(make_batch([6, 9, 12]))).backward()
    assert all(parameter.grad.any() for name, parameter in model.named_parameters() if "positions" not in name)


def test_predictions_do_not_look_at_the_labels():
    model, batch = make_model().eval(), make_batch([6, 9])
    before = model.predict_masked(batch)
    batch.masked_labels_M.zero_()
    assert torch.equal(model.predict_masked(batch), before)


@pytest.mark.parametrize(("size", "count"), PUBLISHED_COUNTS.items())
def test_parameter_counts_are_the_published_ones(size, count):
    layers, width, heads = size
    with torch.device("meta"):
        model = MaskedTokens(Model(layers=layers, width=width, heads=heads, feed_forward=4 * width), 30_522)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


def test_the_same_seed_gives_the_same_weights():
    first, again, other = (make_model(seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(again[name], tensor) for name, tensor in first.items())
    assert not torch.equal(other["encoder.embeddings.words.weight"], first["encoder.embeddings.words.weight"])


def test_a_few_steps_learn_a_batch_by_heart():
    model, batch = make_model(), make_batch([20, 30])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    before = loss(model.eval(), batch).item()
    torch.manual_seed(0)
    model.train()
    for _ in range(25):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    assert loss(model.eval(), batch).item() < before / 3


def test_compiled_once_for_all_lengths_and_equal_to_eager():
    model = make_model()
    # This backend differentiates and divides the graph as the default one does, without generating code.
    compiled = torch.compile(model, dynamic=True, fullgraph=True, backend="aot_eager_decomp_partition")
    counters.clear()
    for lengths in ([6, 9, 12], [7, 3, 31], [8, 8, 8], [40, 2, 2, 13]):
        batch = make_batch(lengths)
        for run in (model, compiled):
            model.zero_grad()
            torch.manual_seed(1)
            terms = run(batch)
            sum(total / count for total, count in terms.values()).backward()
            gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
            if run is model:
                expected, expected_gradients = terms, gradients
        assert terms["mlm"][1] == expected["mlm"][1]
        torch.testing.assert_close(terms["mlm"][0], expected["mlm"][0])
        torch.testing.assert_close(gradients, expected_gradients, atol=1e-5, rtol=1e-4)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("paired", [True, False])
def test_runs_under_distributed_data_parallel(tmp_path, paired):
    model, batch = MaskedTokens(SETTINGS, VOCABULARY_SIZE, pairs=paired).eval(), make_batch([6, 9])
    batch = batch if paired else without_pairs(batch)
    loss(model, batch).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(model)
        for _ in range(2):  # the second forward fails where a parameter had no gradient
            model.zero_grad()
            loss(wrapped, batch).backward()
        # Before the group: else the reducer frees the group, and waits for the group's threads while it holds the GIL,
        # which they need.
        del wrapped
    finally:
        torch.distributed.destroy_process_group()
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], expected)
