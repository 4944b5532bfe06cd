"""The families that are compared with transformers: small settings, vocabularies, modules and batches of each."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from pipeline.batch import Batch, MaskedBatch, NextSentenceBatch, SentenceOrderBatch, TaskBatch
from pipeline.config.data import FullSentences, NextSentence, Sampling, SentenceOrder
from pipeline.config.model import Model
from pipeline.config.model_parts import (
    BlockSparseAttention,
    BucketedAttention,
    DisentangledAttention,
    GlobalLocalAttention,
    LearnedPositions,
    LocalAttention,
    NoPositions,
    RotaryPositions,
)
from pipeline.config.objective import Masked, Objective, Replaced
from pipeline.config.training import AdamW
from pipeline.objectives.replaced import ReplacedTokens
from pipeline.objectives.table import Pretraining, build_objective
from pipeline.objectives.tasks import OBJECTIVES, TaskObjective
from pipeline.optim.build import build_optimizer
from pipeline.text.splitting import SPECIALS_OF_BYTES
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.checkpoint import State, save
from tests.unit.objectives.batches import as_task

SPECIALS = ("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
CONTINUED = tuple(f"##{letter}" for letter in LETTERS)
MARKS = (",", ".", "?", "-")
TEXTS = (
    "The house, the Straße.",
    "Été? été - Дом 中文字 ἀρ",
    "",
    "housing 한국 ال कि",
    "a very long word: donaudampfschiff ABC",
)

CLASSES = 3
Module = TypeVar("Module", bound=nn.Module)


def uncased() -> Vocabulary:
    return Vocabulary(tokens=(*SPECIALS, *MARKS, *LETTERS, *CONTINUED, "the", "house", "##ing"), lowercase=True)


def cased() -> Vocabulary:
    capitals = tuple(letter.upper() for letter in LETTERS)
    words = ("The", "House", "Straße", "é", "##é")
    return Vocabulary(tokens=(*SPECIALS, *MARKS, *LETTERS, *CONTINUED, *capitals, *words), lowercase=False)


def multilingual() -> Vocabulary:
    """Cased, accents kept, letters of several scripts, Chinese characters each by itself (as
    bert-base-multilingual-cased).
    """
    others = (*"中文字дДἀاकéß한", "##о", "##м", "##ρ", "##ل", "##ि", "##é", "##ß", "##국")
    return Vocabulary(tokens=(*SPECIALS, *MARKS, *LETTERS, *CONTINUED, "H", "T", *others), lowercase=False)


def unigram() -> Vocabulary:
    """Pieces of a unigram model, uncased as ALBERT's."""
    return train_vocabulary([*TEXTS, "The house. The houses"] * 3, size=120, lowercase=True, kind="unigram")


def unigram_cased() -> Vocabulary:
    """Pieces of a unigram model, cased, as a trained vocabulary of BigBird's."""
    return train_vocabulary([*TEXTS, "The house. The houses"] * 3, size=120, lowercase=False, kind="unigram")


def byte_bpe() -> Vocabulary:
    """<s> <pad> </s> <unk> first and <mask> last, as RoBERTa's."""
    return train_vocabulary([*TEXTS, "The house. The houses"] * 3, size=300, lowercase=False, kind="byte-bpe")


def unigram_of_xlm_roberta() -> Vocabulary:
    """<s> <pad> </s> <unk> first and <mask> last, as XLM-R's."""
    texts = [*TEXTS, "The house. The houses"] * 3
    return train_vocabulary(texts, size=200, lowercase=False, kind="unigram", specials=SPECIALS_OF_BYTES)


SMALL = Model(
    layers=2,
    width=32,
    heads=4,
    feed_forward=48,
    maximum_positions=40,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
ROBERTA = replace(SMALL, family="roberta", segments=1, positions=LearnedPositions(first=2), layer_norm_epsilon=1e-5)
XLM_ROBERTA = replace(ROBERTA, family="xlm-roberta")
ELECTRA = replace(SMALL, family="electra", embedding_width=24)
DISTILBERT = replace(SMALL, family="distilbert", segments=0)
# Lengths of up to 24 tokens lie below and above the distances that are told apart.
DEBERTA = replace(
    SMALL,
    family="deberta",
    segments=0,
    layer_norm_epsilon=1e-7,
    positions=NoPositions(),
    attention=DisentangledAttention(maximum_distance=10),
)
DEBERTA_V2 = replace(DEBERTA, family="deberta-v2", attention=BucketedAttention(buckets=8, maximum_distance=16))
MODERNBERT = replace(
    SMALL,
    family="modernbert",
    layers=4,
    segments=0,
    positions=RotaryPositions(theta=500.0, local_theta=50.0),
    attention=LocalAttention(window=8, global_every=3),
    inner="geglu",
    block="pre-norm",
    bias=False,
    layer_norm_epsilon=1e-5,
)
LONGFORMER = replace(ROBERTA, family="longformer", attention=GlobalLocalAttention(window=8))
ALBERT = replace(SMALL, family="albert", layers=3, embedding_width=24, activation="gelu_new")

# Attention is full up to length 56; tests/parity/test_bigbird.py has longer sequences.
BIGBIRD = replace(
    SMALL,
    family="bigbird",
    activation="gelu_new",
    attention=BlockSparseAttention(block_size=8, random_blocks=1),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A family with a vocabulary and an objective, and the classes of transformers that read it."""

    settings: Model
    vocabulary: Callable[[], Vocabulary]
    prefix: str
    """Prefix of its classes in transformers."""
    classes: dict[str, str]
    """Folder of a published model -> class."""
    objective: Objective = field(default_factory=Masked)
    pairs: FullSentences | NextSentence | SentenceOrder = field(default_factory=FullSentences)
    unread: frozenset[str] = frozenset()
    """Tensors that its class for tags has in transformers and does not read, and that our files lack."""

    @property
    def sampling(self) -> Sampling:
        return Sampling(maximum_length=self.settings.maximum_positions, pairs=self.pairs)

    def module(self, seed: int = 5) -> Pretraining:
        """A pretraining module whose weights are far from where they start."""
        vocabulary = self.vocabulary()
        made = shaken(build_objective(self.objective, self.sampling, self.settings, vocabulary.size), seed)
        if isinstance(made, ReplacedTokens):
            with torch.no_grad():  # padding is never sampled: transformers gives its row no gradient
                made.generator.masked_token_head.bias[vocabulary.pad_id] = -30
        return made

    def task(self, kind: str, seed: int = 5) -> TaskObjective:
        """A fine-tuning module with such weights."""
        outputs = CLASSES if kind in ("classification", "multilabel", "tags") else 0
        generator = torch.Generator().manual_seed(seed)
        return shaken(OBJECTIVES[kind](self.settings, self.vocabulary().size, outputs, generator, "cls", None), seed)

    def save(self, module: Pretraining, folder: Path) -> Path:
        """A checkpoint of the module."""
        return Path(save(str(folder), State(step=7), module, build_optimizer(AdamW(), module), self.vocabulary()))


BERT_CLASSES = {"": "BertForPreTraining"}
ROWS: dict[str, Row] = {
    "bert": Row(settings=SMALL, vocabulary=uncased, prefix="Bert", classes=BERT_CLASSES, pairs=NextSentence()),
    "bert-cased": Row(settings=SMALL, vocabulary=cased, prefix="Bert", classes=BERT_CLASSES, pairs=NextSentence()),
    "bert-multilingual": Row(
        settings=SMALL, vocabulary=multilingual, prefix="Bert", classes=BERT_CLASSES, pairs=NextSentence()
    ),
    "bert-unpaired": Row(settings=SMALL, vocabulary=uncased, prefix="Bert", classes={"": "BertForMaskedLM"}),
    "roberta": Row(settings=ROBERTA, vocabulary=byte_bpe, prefix="Roberta", classes={"": "RobertaForMaskedLM"}),
    "roberta-wordpiece": Row(
        settings=ROBERTA.for_padding(0), vocabulary=cased, prefix="Roberta", classes={"": "RobertaForMaskedLM"}
    ),
    "xlm-roberta": Row(
        settings=XLM_ROBERTA,
        vocabulary=unigram_of_xlm_roberta,
        prefix="XLMRoberta",
        classes={"": "XLMRobertaForMaskedLM"},
    ),
    "electra": Row(
        settings=ELECTRA,
        vocabulary=uncased,
        prefix="Electra",
        classes={"": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"},
        objective=Replaced(generator_share=0.5),
    ),
    "electra-masked": Row(settings=ELECTRA, vocabulary=uncased, prefix="Electra", classes={"": "ElectraForMaskedLM"}),
    "distilbert": Row(
        settings=DISTILBERT, vocabulary=uncased, prefix="DistilBert", classes={"": "DistilBertForMaskedLM"}
    ),
    "modernbert": Row(
        settings=MODERNBERT, vocabulary=uncased, prefix="ModernBert", classes={"": "ModernBertForMaskedLM"}
    ),
    "albert": Row(
        settings=ALBERT,
        vocabulary=unigram,
        prefix="Albert",
        classes={"": "AlbertForPreTraining"},
        pairs=SentenceOrder(),
    ),
    "albert-v1": Row(  # embeddings as wide as the model are projected too
        settings=replace(ALBERT, activation="gelu", embedding_width=None),
        vocabulary=unigram,
        prefix="Albert",
        classes={"": "AlbertForMaskedLM"},
    ),
    "deberta": Row(settings=DEBERTA, vocabulary=byte_bpe, prefix="Deberta", classes={"": "DebertaForMaskedLM"}),
    "deberta-v2": Row(
        settings=DEBERTA_V2, vocabulary=unigram, prefix="DebertaV2", classes={"": "DebertaV2ForMaskedLM"}
    ),
    "longformer": Row(
        settings=LONGFORMER, vocabulary=byte_bpe, prefix="Longformer", classes={"": "LongformerForMaskedLM"}
    ),
    "bigbird": Row(
        settings=BIGBIRD,
        vocabulary=unigram_cased,
        prefix="BigBird",
        classes={"": "BigBirdForPreTraining"},
        pairs=NextSentence(),
        unread=frozenset({"bert.pooler.weight", "bert.pooler.bias"}),
    ),
}
WITHOUT_CHOICES = ("deberta",)
"""Families for which transformers has no class of multiple choice."""
FAMILIES = (
    *("bert", "roberta", "electra", "distilbert", "albert", "modernbert", "deberta", "deberta-v2"),
    *("longformer", "bigbird"),
)
"""Rows that stand for a family where vocabulary and objective make no difference; xlm-roberta has roberta's modules."""


def shaken(module: Module, seed: int) -> Module:
    """Random weights, biases and norms, none where it starts: one in the wrong place would not show there, nor a wrong
    scale of attention with weights of deviation 0.02.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            is_norm = parameter.dim() == 1 and name.endswith("weight")
            parameter.normal_(mean=1.0 if is_norm else 0.0, std=0.2, generator=generator)
    return module.eval()


LENGTHS = (7, 24, 1, 13, 24)
MASKED = (1, 5, 7, 9, 30, 31, 33, 44, 45, 68)


def pretraining_batch(row: Row, size: int) -> MaskedBatch:
    """Random ids without padding's, which transformers takes for none, with masked positions and a label per pair."""
    generator = torch.Generator().manual_seed(1)
    masked = torch.tensor(MASKED)
    batch = MaskedBatch(
        **_inputs(row, size, LENGTHS, generator),
        masked_positions_M=masked,
        masked_labels_M=_text_ids(row, size, len(masked), generator),
    )
    if isinstance(row.pairs, NextSentence):
        return NextSentenceBatch(**vars(batch), not_next_N=torch.tensor([0, 1, 1, 0, 1]))
    if isinstance(row.pairs, SentenceOrder):
        return SentenceOrderBatch(**vars(batch), swapped_N=torch.tensor([0, 1, 1, 0, 1]))
    return batch


def task_batch(row: Row, size: int, kind: str, lengths: tuple[int, ...] = (9, 5, 12, 7)) -> TaskBatch:
    """Random ids and labels of a kind of task."""
    random = torch.Generator().manual_seed(0)
    tokens, rows = sum(lengths), len(lengths)
    labels, passages = torch.zeros(0), None
    if kind == "classification":
        labels = torch.randint(CLASSES, (rows,), generator=random).float()
    if kind == "regression":
        labels = torch.randn(rows, generator=random)
    if kind == "multilabel":
        labels = torch.randint(2, (rows * CLASSES,), generator=random).float()
    if kind == "tags":
        drawn = torch.randint(CLASSES, (tokens,), generator=random)
        labels = torch.where(torch.rand(tokens, generator=random) < 0.3, -100, drawn).float()
    if kind == "spans":
        ends = [torch.randint(length, (2,), generator=random) for length in lengths]
        labels = torch.stack(ends).flatten().float()
    inputs = _inputs(row, size, lengths, random)
    if kind == "choices":  # rows of two choices each
        labels = torch.randint(2, (rows // 2,), generator=random).float()
        passages = torch.full((rows // 2,), 2)
    if kind in ("spans", "choices") and row.settings.family == "longformer":
        # transformers finds the question, or the choice, by its separators
        inputs["ids_T"] = with_separators(inputs["ids_T"], lengths, row.vocabulary().sep_id)
        inputs["segments_T"] = torch.cat([(torch.arange(n) > n // 3 + 1).long() for n in lengths])
    return as_task(Batch(**inputs), labels, passages=passages)


def with_separators(ids_T: Tensor, lengths: tuple[int, ...], sep_id: int) -> Tensor:
    """The ids with two separators after a third of each sequence, one at its end, and no others."""
    parts = torch.where(ids_T == sep_id, sep_id + 1, ids_T).split(lengths)
    for part in parts:
        part[[len(part) // 3, len(part) // 3 + 1, -1]] = sep_id
    return torch.cat(parts)


def _text_ids(row: Row, size: int, count: int, generator: torch.Generator) -> Tensor:
    """Random ids, none of them padding's."""
    ids = torch.randint(0, size - 1, (count,), generator=generator)
    return ids + (ids >= row.vocabulary().pad_id).long()


def _inputs(row: Row, size: int, lengths: tuple[int, ...], generator: torch.Generator) -> dict:
    return {
        "ids_T": _text_ids(row, size, sum(lengths), generator),
        "segments_T": torch.cat([(torch.arange(n) > n // 2).long() for n in lengths]),
        "positions_T": torch.cat([torch.arange(n) for n in lengths]),
        "offsets": torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32),
        "maximum_length": max(lengths),
    }


def pad(flat: Tensor, batch: Batch, fill: int) -> Tensor:
    """Flat values (T, ...) as (N, S, ...)."""
    parts = list(flat.split(batch.offsets.diff().tolist()))
    return nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=fill)


def their_inputs(row: Row, batch: Batch) -> dict[str, Tensor]:
    """The batch as transformers takes it; segments only where there are two."""
    inputs = {
        "input_ids": pad(batch.ids_T, batch, row.vocabulary().pad_id),
        "attention_mask": pad(torch.ones_like(batch.ids_T), batch, 0),
    }
    return inputs | ({"token_type_ids": pad(batch.segments_T, batch, 0)} if row.settings.segments > 1 else {})


def assert_close(ours: Tensor, theirs: Tensor, floor: float = 0.0, name: str = "") -> None:
    """Equal to 1e-5 of the largest, or of the floor if that is larger."""
    largest = max(theirs.abs().max().item(), floor)
    found = (ours - theirs).abs().max().item()
    assert found <= 1e-5 * largest, f"{name}: {found:.3g} apart, and the largest is {largest:.3g}"
