"""Held-out sentences with a hidden word: of which parents and languages, and the words that the baseline counts."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pipeline.config.model import Model
from pipeline.corpus.prepared import Corpus, Window
from pipeline.evaluation.blanks import Blank, Blanks, chosen, fill_in_the_blanks, readable, sentences_with_blanks
from pipeline.evaluation.heldout import unigram_counts
from pipeline.objectives.masked import MaskedTokens
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.schema import DOCUMENT
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary

SENTENCES = [f"The old man went {place} times over the hill with a bag." for place in ("one", "two", "six", "ten")]
CHINESE = ["他们今天去北京看朋友。", "我们明天去上海看电影！"]


def corpus_of(folder: Path, documents: list[tuple[str, str]], language: str) -> Corpus:
    """A corpus with one window, both for training and held out, of (parent, text)."""
    rows = [
        {
            "id": f"{number}#0",
            "parent": parent,
            "title": "",
            "text": text,
            "source": "",
            "lines_are_sentences": False,
            "language": language,
        }
        for number, (parent, text) in enumerate(documents)
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=DOCUMENT), folder / "one.parquet")
    windows = (
        Window(
            shard="one.parquet", row_group=0, documents=len(rows), characters=sum(len(text) for _, text in documents)
        ),
    )
    return Corpus(
        folder=str(folder), fingerprint="0", train=windows, heldout=windows, counts={}, dropped={}, sources={}
    )


def shown(corpus: Corpus, vocabulary: Vocabulary) -> list[str]:
    return [
        readable(ids, place, vocabulary)
        for ids, place in sentences_with_blanks(corpus, CachedTokenizer(vocabulary), vocabulary)
    ]


def test_one_parent_gives_several_sentences_and_every_parent_comes_first(tmp_path: Path) -> None:
    vocabulary = train_vocabulary(SENTENCES * 5, size=300, lowercase=True)
    alone = shown(corpus_of(tmp_path, [("p", " ".join(SENTENCES))], "en"), vocabulary)
    assert len(alone) == 4 and all(text.count("____") == 1 for text in alone) and len(set(alone)) == 4
    two = [("p", " ".join(SENTENCES[:2])), ("p", SENTENCES[2]), ("q", SENTENCES[3])]
    found = list(sentences_with_blanks(corpus_of(tmp_path, two, "en"), CachedTokenizer(vocabulary), vocabulary))
    order = [next(word for word in ("one", "two", "six", "ten") if vocabulary.ids[word] in ids) for ids, _ in found]
    assert order == ["one", "ten", "two", "six"]


@pytest.mark.parametrize("language", ["zh", "ja"])
def test_chinese_has_blanks_and_is_read_without_spaces(language: str, tmp_path: Path) -> None:
    vocabulary = train_vocabulary(CHINESE, size=120, lowercase=True)
    found = shown(corpus_of(tmp_path, [("p", "".join(CHINESE))], language), vocabulary)
    assert len(found) == 2
    for text, sentence in zip(found, CHINESE):
        before, after = text.split("____")
        assert sentence.startswith(before.strip()) and len(before.strip() + after) <= len(sentence) + 2


def test_the_language_of_a_document_splits_its_sentences(tmp_path: Path) -> None:
    text = "Das alte Haus steht bzw. Oben auf dem Berg im Wald."
    vocabulary = train_vocabulary([text] * 5, size=300, lowercase=True)
    (german,) = shown(corpus_of(tmp_path, [("p", text)], "de"), vocabulary)
    assert german.endswith("wald .") and german.startswith("das" if "das" in german else "____")
    assert shown(corpus_of(tmp_path, [("p", text)], "en"), vocabulary) != [german]


def test_unigram_counts_are_of_every_word_whatever_the_language(tmp_path: Path) -> None:
    vocabulary = train_vocabulary(CHINESE, size=120, lowercase=True)
    counts = unigram_counts(
        corpus_of(tmp_path, [("p", "".join(CHINESE))], "zh"), CachedTokenizer(vocabulary), vocabulary.size
    )
    assert counts[vocabulary.ids["去"]] == 2 and counts[vocabulary.ids["京"]] == 1
    assert counts.sum() == len("".join(CHINESE)) and np.all(counts >= 0)


def blank(text: str, answer: str, guess: str, probability: float) -> Blank:
    return Blank(text=text, answer=answer, guesses=[[guess, probability], ["other", 0.01]])


def test_the_surest_right_answers_are_chosen_once_each() -> None:
    right = [
        blank("a", "the", "the", 0.4),
        blank("b", "sea", "sea", 0.3),
        blank("c", "the", "the", 0.6),
        blank("d", "hill", "hill", 0.2),
    ]
    wrong = [blank("e", "bag", "the", 0.9), blank("f", "old", "new", 0.1)]
    found = chosen([wrong[0], *right, wrong[1]])
    assert found == Blanks(
        random=[wrong[0], right[0], right[1]], surest=[right[2], right[1], right[3]], candidates=6, right=4
    )
    assert chosen(wrong) == Blanks(random=wrong, surest=[], candidates=2, right=0)


def test_one_batch_gives_each_sentence_the_guesses_that_it_has_alone(tmp_path: Path) -> None:
    vocabulary = train_vocabulary(SENTENCES * 5, size=300, lowercase=True)
    torch.manual_seed(0)
    module = MaskedTokens(Model(layers=1, width=16, heads=2, feed_forward=32, maximum_positions=32), vocabulary.size)
    together, alone = (
        fill_in_the_blanks(
            module,
            corpus_of(tmp_path, rows, "en"),
            CachedTokenizer(vocabulary),
            vocabulary,
            maximum_length=32,
            device=torch.device("cpu"),
        )
        for rows in ([("p", SENTENCES[0]), ("q", SENTENCES[1])], [("p", SENTENCES[0])])
    )
    assert together.candidates == 2 and alone.candidates == 1 and module.training
    assert (
        together.random[0].answer
        == alone.random[0].answer
        in ("the", "old", "man", "went", "one", "times", "over", "hill", "with", "bag")
    )
    for (word, probability), (expected, wanted) in zip(
        together.random[0].guesses, alone.random[0].guesses, strict=True
    ):
        assert word == expected and probability == pytest.approx(wanted, abs=1e-6)


def test_entries_that_hold_their_spaces_are_shown_as_text(tmp_path: Path) -> None:
    vocabulary = train_vocabulary(SENTENCES * 20, size=330, lowercase=False, kind="byte-bpe")
    alone = shown(corpus_of(tmp_path, [("p", " ".join(SENTENCES))], "en"), vocabulary)
    assert len(alone) == 4 and all(text.count("____") == 1 and "\u0120" not in text for text in alone)
    words = {word for sentence in SENTENCES for word in sentence.strip(".").split()}
    assert all(set(text.replace("____", "").strip(".").split()) < words for text in alone)
