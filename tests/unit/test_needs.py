"""Needs and offers of choices: refusals in words, a new objective, and one table for all."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from pipeline.config import jobs, needs
from pipeline.config.data import FullSentences, Pairs, Sampling, Sentences, TwoCrops, VocabularySettings
from pipeline.config.jobs import Pretrain, eager_reason, recording_problem, require_offered
from pipeline.config.model import FAMILY_PARTS, Model
from pipeline.config.model_parts import Attention
from pipeline.config.needs import COMPARES_PAIRS, EAGER, PAIRS_OF_TEXTS, REFUSALS, SEVERAL_ROWS
from pipeline.config.objective import (
    AnyObjective,
    Contrastive,
    Distilled,
    DistilledVectors,
    Masked,
    Objective,
    Replaced,
)
from pipeline.config.phases import FallingMasks, TwoPhases
from pipeline.config.placement import Placement
from pipeline.config.training import Batch, Evaluation
from pipeline.errors import ConfigError

CROPS, TEXTS, FULL = (Sampling(pairs=pairs) for pairs in (TwoCrops(), Sentences(), FullSentences()))


def refusal(build: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as refused:
        build()
    return str(refused.value)


WORDS: dict[str, tuple[dict[str, Any], str]] = {
    needs.PAIRS_OF_TEXTS: (
        {"objective": Contrastive()},
        "objective (contrastive) needs pairs of texts, but sampling.pairs is NextSentence: choose "
        "sampling.pairs:two-crops, sampling.pairs:adjacent-paragraphs, sampling.pairs:title-paragraph or "
        "sampling.pairs:given-pairs",
    ),
    needs.SINGLE_TEXTS: (
        {"objective": DistilledVectors(), "sampling": CROPS},
        "objective (distilled-vectors) needs single texts, but sampling.pairs is TwoCrops: choose "
        "sampling.pairs:sentences",
    ),
    needs.COMPARES_PAIRS: (
        {"sampling": CROPS},
        "sampling.pairs (TwoCrops) makes pairs of texts for objective contrastive, but objective is masked: choose "
        "objective:contrastive, or other sampling.pairs",
    ),
    needs.LEARNS_TEXTS: (
        {"objective": Distilled(), "sampling": TEXTS},
        "sampling.pairs (Sentences) makes single texts for objective distilled-vectors, but objective is distilled: "
        "choose objective:distilled-vectors, or other sampling.pairs",
    ),
    needs.MASKED_HEAD: (
        {"objective": Contrastive(), "sampling": CROPS, "evaluation": Evaluation(blimp="b")},
        "evaluation.blimp (b) needs a masked-token head, which objective contrastive does not train: leave it out",
    ),
    needs.EAGER: (
        {"objective": Contrastive(), "sampling": CROPS, "placement": Placement(compile="on")},
        "placement.compile (on) cannot be used, because objective contrastive needs equal dropout in a pass with "
        "gradients and in one without: set placement.compile to auto or off",
    ),
    needs.MASKED_TOKENS: (
        {"objective": DistilledVectors(), "sampling": TEXTS, "phases": FallingMasks()},
        "phases (falling-masks) has no effect with objective distilled-vectors, which masks no tokens: choose "
        "phases:one-phase",
    ),
    needs.SEVERAL_ROWS: (
        {"objective": Contrastive(), "sampling": CROPS, "batch": Batch(rows_per_step=1)},
        "batch.rows_per_step (1) must be at least 2 with objective contrastive: the texts of a row are compared with "
        "those of other rows of the step",
    ),
    needs.GENERATOR: (
        {"objective": Replaced(), "sampling": FULL},
        "objective (replaced) needs model.family electra or deberta-v2, which have a generator, but model.family is "
        "bert: choose a preset electra-* or deberta-v3-*",
    ),
    needs.ENHANCED_DECODER: (
        {"objective": Masked(decoder="enhanced")},
        "objective.decoder (enhanced) needs model.family deberta or deberta-v2, but model.family is bert: leave "
        "objective.decoder out",
    ),
    needs.PAIR_HEAD: (
        {"objective": Distilled()},
        "sampling.pairs (NextSentence) makes pairs for a head that objective distilled does not have: choose "
        "sampling.pairs:full-sentences or sampling.pairs:single-segment",
    ),
    needs.TEACHERS_VOCABULARY: (
        {"objective": Distilled(), "sampling": FULL, "vocabulary": VocabularySettings(extend=5), "init": "M"},
        "vocabulary.extend (5) cannot be set together with objective distilled, because the run must have the "
        "teacher's vocabulary: leave it out",
    ),
    needs.TEACHERS_WORDS: (
        {"objective": Distilled(), "sampling": FULL, "word_embeddings": "cooccurrence"},
        "word_embeddings (cooccurrence) cannot be set together with objective distilled, whose student starts with "
        "the teacher's word embeddings: leave it out",
    ),
}
"""Need -> settings that do not offer it, and the refusal."""


def test_each_need_is_refused_in_its_words() -> None:
    assert WORDS.keys() == REFUSALS.keys()
    assert {need: refusal(partial(Pretrain, **settings)) for need, (settings, _) in WORDS.items()} == {
        need: words for need, (_, words) in WORDS.items()
    }


def test_the_remedy_and_the_lacking_choice_are_those_of_the_run() -> None:
    masks = replace(Pretrain(objective=Contrastive(), sampling=CROPS), phases=TwoPhases())
    assert refusal(lambda: replace(masks, phases=TwoPhases(masking_share=0.2))) == (
        "phases.masking_share (0.2) has no effect with objective contrastive, which masks no tokens: leave it out"
    )
    assert "makes pairs for a head that roberta does not have" in refusal(
        lambda: Pretrain(model=Model(family="roberta", segments=1))
    )
    warming = Batch(rows_per_step=4, rows_per_slot=1, warmup_rows=1, warmup_steps=1)
    assert refusal(lambda: replace(masks, batch=warming)).startswith("batch.warmup_rows (1) must be at least 2 with")


def test_needs_of_a_family_wait_until_the_initial_model_is_read() -> None:
    config = Pretrain(init="M", objective=Replaced())
    assert "which have a generator, but model.family is bert" in refusal(partial(require_offered, config))
    electra = replace(config, model=Model(family="electra"))
    assert "makes pairs for a head that objective replaced" in refusal(partial(require_offered, electra))
    require_offered(replace(electra, sampling=FULL))


@dataclass(frozen=True, kw_only=True)
class Ordered(AnyObjective):
    """An objective that is in no table."""

    needs = (PAIRS_OF_TEXTS, EAGER, SEVERAL_ROWS)
    offers = (COMPARES_PAIRS,)
    eager = "sorts the texts"


def test_a_new_objective_is_compared_by_what_it_says() -> None:
    ordered: Any = Ordered()
    config = Pretrain(objective=ordered, sampling=CROPS)
    assert eager_reason(config) == "objective ordered sorts the texts"
    assert recording_problem(config) == "objective masked, but objective is ordered"
    for need, (settings, words) in WORDS.items():
        if isinstance(settings.get("objective"), Contrastive):
            eager = words.replace("needs equal dropout in a pass with gradients and in one without", "sorts the texts")
            wanted = eager.replace("objective contrastive", "objective ordered").replace("(contrastive)", "(ordered)")
            assert refusal(partial(Pretrain, **settings | {"objective": ordered})) == wanted, need
    assert "makes single texts for objective distilled-vectors, but objective is masked" in refusal(
        lambda: replace(config, objective=Masked(), sampling=TEXTS)
    )


def test_every_need_is_offered_and_every_reason_is_given() -> None:
    kinds = (*get_args(Objective), *get_args(Pairs), *get_args(Attention))
    choices = [kind() for kind in kinds] + [Masked(decoder="enhanced")]
    offered = {offer for choice in (*choices, *FAMILY_PARTS.values()) for offer in choice.offers}
    needed = {need for choice in choices for need in choice.needs} | {needs.MASKED_HEAD, needs.MASKED_TOKENS}
    of_the_run = {EAGER, SEVERAL_ROWS, needs.TEACHERS_VOCABULARY, needs.TEACHERS_WORDS}
    assert needed == REFUSALS.keys() and needed - of_the_run == offered - {needs.RECORDABLE}
    assert [type(choice) for choice in choices if (EAGER in choice.needs) != bool(choice.eager)] == []


def test_the_settings_of_a_run_name_no_objective_but_the_default() -> None:
    names = {
        node.id for node in ast.walk(ast.parse(Path(jobs.__file__).read_text("utf-8"))) if isinstance(node, ast.Name)
    }
    assert names & {kind.__name__ for kind in get_args(Objective)} == {"Masked"}
