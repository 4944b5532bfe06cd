"""Needs of a choice that other choices must offer, and the sentence that refuses a run in which they do not."""

from dataclasses import dataclass

MASKED_TOKENS, PAIRS_OF_TEXTS, SINGLE_TEXTS = "masked tokens", "pairs of texts", "single texts"
"""Rows that a kind of sampling.pairs offers."""
COMPARES_PAIRS, LEARNS_TEXTS, PAIR_HEAD = "comparison of pairs", "vectors of single texts", "head for labelled pairs"
"""Properties that an objective offers to rows of two texts, to rows of one text, and to labelled pairs of segments."""
MASKED_HEAD, RECORDABLE = "masked-token head", "recordable slots"
"""Properties that an objective offers to scores of words, and to CUDA graphs."""
GENERATOR, ENHANCED_DECODER = "generator", "enhanced mask decoder"
"""Properties that a family offers to an objective."""
EAGER, SEVERAL_ROWS = "code that is not compiled", "several rows per step"
TEACHERS_VOCABULARY, TEACHERS_WORDS = "the teacher's vocabulary", "the teacher's word embeddings"
"""Properties that the run's other settings offer to an objective."""


class Choice:
    """Base of settings that differ in kind.

    These attributes belong to the kind. They have no annotation, so that they do not become fields, which are options.
    """

    needs = tuple[str, ...]()
    """Names of properties that other choices must offer, keys of REFUSALS."""
    offers = tuple[str, ...]()
    """Names of properties that this kind offers to other choices."""
    eager = ""
    """Reason why torch.compile is not used, for a kind that needs EAGER: the words after its name."""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Settings that must offer a need, and the sentence for a run in which one of them does not."""

    by: tuple[str, ...]
    """Names of the settings."""
    sentence: str
    """Holes: {config}, {objective}, {pairs} and {family} of the run; {lacking}, the setting that does not offer it;
    {names} and {kinds}, the kinds of the first setting in `by` that do; {eager}, the reason of the choice that needs
    EAGER; {unlabelled}, the kinds of sampling.pairs with the same rows and without needs.
    """


REFUSALS = {
    PAIRS_OF_TEXTS: Refusal(
        by=("sampling.pairs",),
        sentence="objective ({objective}) needs pairs of texts, but sampling.pairs is {pairs}: choose {kinds}",
    ),
    SINGLE_TEXTS: Refusal(
        by=("sampling.pairs",),
        sentence="objective ({objective}) needs single texts, but sampling.pairs is {pairs}: choose {kinds}",
    ),
    COMPARES_PAIRS: Refusal(
        by=("objective",),
        sentence="sampling.pairs ({pairs}) makes pairs of texts for objective {names}, but objective is {objective}: "
        "choose {kinds}, or other sampling.pairs",
    ),
    LEARNS_TEXTS: Refusal(
        by=("objective",),
        sentence="sampling.pairs ({pairs}) makes single texts for objective {names}, but objective is {objective}: "
        "choose {kinds}, or other sampling.pairs",
    ),
    MASKED_HEAD: Refusal(
        by=("objective",),
        sentence="evaluation.blimp ({config.evaluation.blimp}) needs a masked-token head, which objective {objective} "
        "does not train: leave it out",
    ),
    EAGER: Refusal(
        by=("placement.compile",),
        sentence="placement.compile (on) cannot be used, because {eager}: set placement.compile to auto or off",
    ),
    MASKED_TOKENS: Refusal(
        by=("sampling.pairs",),
        sentence="{config.phases.masks} has no effect with objective {objective}, which masks no tokens: "
        "{config.phases.remedy}",
    ),
    SEVERAL_ROWS: Refusal(
        by=("batch",),
        sentence="{config.phase_of_fewest_rows.fewest_rows_name} ({config.phase_of_fewest_rows.batch.fewest_rows}) "
        "must be at least 2 with objective {objective}: the texts of a row are compared with those of other rows of "
        "the step",
    ),
    GENERATOR: Refusal(
        by=("model.family",),
        sentence="objective ({objective}) needs model.family {names}, which have a generator, but model.family is "
        "{family}: choose a preset electra-* or deberta-v3-*",
    ),
    ENHANCED_DECODER: Refusal(
        by=("model.family",),
        sentence="objective.decoder (enhanced) needs model.family {names}, but model.family is {family}: leave "
        "objective.decoder out",
    ),
    PAIR_HEAD: Refusal(
        by=("objective", "model.family"),
        sentence="sampling.pairs ({pairs}) makes pairs for a head that {lacking} does not have: choose {unlabelled}",
    ),
    TEACHERS_VOCABULARY: Refusal(
        by=("vocabulary.extend",),
        sentence="vocabulary.extend ({config.vocabulary.extend}) cannot be set together with objective {objective}, "
        "because the run must have the teacher's vocabulary: leave it out",
    ),
    TEACHERS_WORDS: Refusal(
        by=("word_embeddings",),
        sentence="word_embeddings ({config.word_embeddings}) cannot be set together with objective {objective}, whose "
        "student starts with the teacher's word embeddings: leave it out",
    ),
}
"""Need -> who must offer it, and the refusal's words, in the order in which needs are compared."""
