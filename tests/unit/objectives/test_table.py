"""The table of objectives says the same as their settings and modules."""

from dataclasses import replace
from typing import get_args

from pipeline.config.data import FullSentences, Sampling, Sentences, TwoCrops
from pipeline.config.model import Model
from pipeline.config.model_parts import BucketedAttention, NoPositions
from pipeline.config.needs import MASKED_HEAD, PAIRS_OF_TEXTS, SEVERAL_ROWS, SINGLE_TEXTS
from pipeline.config.objective import DistilledVectors, Masked, Objective, Replaced
from pipeline.model.encoder import encoders_in
from pipeline.objectives.masked import MaskedTokens
from pipeline.objectives.replaced import ReplacedTokens
from pipeline.objectives.table import CURVES, DESCRIPTIONS, OBJECTIVES, build_objective

MODEL = Model(family="electra", layers=1, width=8, heads=2, feed_forward=8)
ROWS = {PAIRS_OF_TEXTS: TwoCrops(), SINGLE_TEXTS: Sentences()}


def test_modules_answer_what_settings_offer_and_rows_say() -> None:
    for kind in get_args(Objective):
        objective, handlers = kind(), OBJECTIVES[kind]
        pairs = next((ROWS[need] for need in objective.needs if need in ROWS), FullSentences())
        module = build_objective(objective, Sampling(pairs=pairs), MODEL, 20)
        assert module.fills_blanks == (MASKED_HEAD in objective.offers) == hasattr(module, "predict_masked")
        assert module.two_passes == (SEVERAL_ROWS in objective.needs) == (handlers.forward_passes == 2)
        assert hasattr(module, "learn_from") == bool(objective.teacher_gives)
        assert hasattr(module, "start_from_teacher") == objective.starts_from_teacher
        assert module.selecting in DESCRIPTIONS or kind is Replaced
        assert {curve.term for curve in handlers.curves} & set(module.terms)
        assert (module.words.shape, len(encoders_in(module))) == ((20, 8), 1 + (kind is Replaced))
    assert len({curve.term for curve in CURVES}) == len(CURVES)


def test_modules_say_what_transformers_has_of_their_heads() -> None:
    enhanced, plain = (MaskedTokens(MODEL, 20, enhanced=enhanced) for enhanced in (True, False))
    assert (enhanced.publishes_hidden_states, plain.publishes_hidden_states) == (True, False)
    assert (ReplacedTokens(MODEL, 20, Replaced()).has_published_head, plain.has_published_head) == (True, True)
    deberta = replace(MODEL, family="deberta-v2", segments=0, positions=NoPositions(), attention=BucketedAttention())
    assert not ReplacedTokens(deberta, 20, Replaced(generator_share=1.0)).has_published_head


def test_teachers_give_what_their_objectives_learn() -> None:
    given = {kind.__name__: kind().teacher_gives for kind in (Masked, Replaced, DistilledVectors)}
    assert given == {"Masked": "", "Replaced": "", "DistilledVectors": "text vectors"}
