"""The loss of a tagger with a chain equals the sum over windows, each from all its tag sequences."""

import pytest
import torch

from pipeline.batch import TaskBatch
from pipeline.config.model import Model
from pipeline.objectives.tokens import CUT, IGNORED, TagTask
from pipeline.tasks.tag_schemes import scheme_of
from tests.unit.model.test_chain import paths_of

NAMES = ("O", "B-X", "I-X")
MODEL = Model(layers=1, width=16, heads=2, feed_forward=32, maximum_positions=32, initializer_deviation=0.5)
NO = IGNORED
WINDOWS = (
    ([NO, 1, NO, 2, 0, NO], True, True),  # a whole sentence
    ([NO, 0, 1, CUT], True, False),  # the beginning of a sentence
    ([CUT, NO, 2, NO, 2, CUT], False, False),  # its middle, which begins inside of an entity
    ([CUT, 2, NO], False, True),  # its end
    ([NO, NO], True, True),  # a sentence without words that have tokens
)


def batch_of(windows: list[list[int]]) -> TaskBatch:
    lengths = torch.tensor([len(labels) for labels in windows])
    total = int(lengths.sum())
    return TaskBatch(
        ids_T=torch.arange(total) % 9,
        segments_T=torch.zeros(total, dtype=torch.int64),
        positions_T=torch.cat([torch.arange(length) for length in lengths]),
        offsets=torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0))).int(),
        maximum_length=int(lengths.max()),
        teacher=torch.zeros(0),
        labels=torch.tensor([label for labels in windows for label in labels]).float(),
    )


def module_of() -> TagTask:
    module, scheme = TagTask(MODEL, 9, 3, torch.Generator().manual_seed(1)).eval(), scheme_of(NAMES)
    assert scheme is not None
    module.add_chain(scheme.start, scheme.following, scheme.end)
    assert module.tag_chain is not None
    with torch.no_grad():
        for parameter in module.tag_chain.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(parameter.numel()))
    return module


@torch.no_grad()
def test_each_window_is_a_chain_of_its_labelled_tokens() -> None:
    module, batch = module_of(), batch_of([labels for labels, _, _ in WINDOWS])
    assert module.tag_chain is not None
    wanted = 0.0
    for logits, (labels, opens, closes) in zip(module.logits(batch).split(batch.offsets.diff().tolist()), WINDOWS):
        tags = [label for label in labels if label >= 0]
        if tags:
            paths = paths_of(module.tag_chain, logits[torch.tensor(labels) >= 0], opens, closes)
            wanted += float(torch.tensor(list(paths.values())).logsumexp(0)) - paths[tuple(tags)]
    total, count = module(batch)["task"]
    assert float(total) == pytest.approx(wanted, rel=1e-4) and int(count) == 8 and total.dtype == torch.float32


def test_without_a_chain_the_marks_of_cut_windows_have_no_loss() -> None:
    module = TagTask(MODEL, 9, 3, torch.Generator().manual_seed(1)).eval()
    with torch.no_grad():
        cut, plain = (
            module(
                batch_of(
                    [[NO if label == CUT and not marked else label for label in labels] for labels, _, _ in WINDOWS]
                )
            )
            for marked in (True, False)
        )
    assert torch.equal(cut["task"][0], plain["task"][0]) and torch.equal(cut["task"][1], plain["task"][1])
