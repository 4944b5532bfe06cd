"""Held-out sentences with a hidden word: which sentences, of which parents and languages, and how they are printed."""

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pipeline.config.model import Model
from pipeline.corpus.prepared import Corpus, Window
from pipeline.evaluation.blanks import (
    Blank,
    Blanks,
    Hidden,
    chosen,
    fill_in_the_blanks,
    sentences_with_blanks,
    word_entries,
)
from pipeline.evaluation.heldout import unigram_counts
from pipeline.objectives.masked import MaskedTokens
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.schema import DOCUMENT
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary

SENTENCES = [f"The old man went {place} times over the hill with a bag." for place in ("one", "two", "six", "ten")]
PLAIN = "The old man went over the hill with (at least) one heavy bag."
CODE = [
    "Call the function `hill` with the old bag of the man.",
    "The value hill_bag goes over the old man and one bag.",
    "See the hill.bag over which the old man went one time.",
]
CHINESE = ["他们今天去北京看朋友，我们明天去上海看电影。", "我们今天去上海看朋友，他们明天去北京看电影！"]
CHINESE_WORDS = ("他们", "今天", "北京", "朋友", "我们", "明天", "上海", "电影", "去", "看", "，", "。", "！")


def chinese_vocabulary(kind: str, *, separators: tuple[str, ...] = ("",), size: int = 330) -> Vocabulary:
    """A vocabulary of these words' characters (WordPiece), or of pieces such as the words."""
    draw = Random(0)
    texts = [join.join(draw.sample(CHINESE_WORDS, len(CHINESE_WORDS))) for join in separators for _ in range(40)]
    return train_vocabulary(texts, size=size, lowercase=True, kind=kind)


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


def hidden(folder: Path, documents: list[tuple[str, str]], language: str, vocabulary: Vocabulary) -> list[Hidden]:
    return sentences_with_blanks(corpus_of(folder, documents, language), CachedTokenizer(vocabulary), vocabulary)[0]


def answered(blank: Hidden, vocabulary: Vocabulary) -> str:
    """The sentence with the entry that is hidden put back."""
    return blank.text.replace("____", word_entries(vocabulary)[blank.ids[blank.position]])


def test_one_parent_gives_several_sentences_and_every_parent_comes_first(tmp_path: Path) -> None:
    vocabulary = train_vocabulary(SENTENCES * 5, size=300, lowercase=True)
    alone = [blank.text for blank in hidden(tmp_path, [("p", " ".join(SENTENCES))], "en", vocabulary)]
    assert len(alone) == 4 and all(text.count("____") == 1 for text in alone) and len(set(alone)) == 4
    two = [("p", " ".join(SENTENCES[:2])), ("p", SENTENCES[2]), ("q", SENTENCES[3])]
    found = hidden(tmp_path, two, "en", vocabulary)
    numbers = ("one", "two", "six", "ten")
    order = [next(word for word in numbers if vocabulary.ids[word] in blank.ids) for blank in found]
    assert set(order) == set(numbers) and order[1] == "ten" and order[0] in ("one", "two")
    assert len(hidden(tmp_path, [("p", SENTENCES[0]), ("q", SENTENCES[0])], "en", vocabulary)) == 1, "one is a copy"


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
def test_sentences_are_printed_as_their_document_has_them(kind: str, tmp_path: Path) -> None:
    """The case and the spaces of the text stay, whatever the vocabulary does with them."""
    vocabulary = train_vocabulary([PLAIN] * 40, size=340, lowercase=kind == "wordpiece", kind=kind)
    (blank,) = hidden(tmp_path, [("p", PLAIN)], "en", vocabulary)
    assert blank.text.count("____") == 1
    lowered = str.lower if vocabulary.lowercase else str
    assert lowered(answered(blank, vocabulary)) == lowered(PLAIN)
    before, after = blank.text.split("____")
    assert PLAIN.startswith(before) and PLAIN.endswith(after)


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
def test_one_whole_word_is_hidden(kind: str, tmp_path: Path) -> None:
    """No part of a word, as "don" of "don't" and "well" of "well-known", and no word of fewer than three letters."""
    vocabulary = train_vocabulary(["I don t well known un seen so it is"] * 40, size=320, lowercase=False, kind=kind)
    sentence = "I don't so it is well-known so it is unseen."
    assert hidden(tmp_path, [("p", sentence)], "en", vocabulary) == []
    (blank,) = hidden(tmp_path, [("p", sentence.replace("unseen", "seen"))], "en", vocabulary)
    assert blank.text == "I don't so it is well-known so it is ____."


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe"])
def test_code_is_not_shown_where_there_is_enough_prose(kind: str, tmp_path: Path) -> None:
    vocabulary = train_vocabulary([*SENTENCES, *CODE] * 20, size=340, lowercase=True, kind=kind)
    verbs = ("went", "goes", "looked", "walked", "came", "ran", "rode", "fell", "got", "sang")
    prose = [("p", f"The old man {verb} over the hill with one bag.") for verb in verbs]
    code = [(f"c{number}", sentence) for number, sentence in enumerate(CODE)]
    for documents, candidates, plain in ((code + prose, 10, 10), (code + prose[:2], 5, 2), (code, 3, 0)):
        corpus = corpus_of(tmp_path, documents, "en")
        found, count = sentences_with_blanks(corpus, CachedTokenizer(vocabulary), vocabulary)
        assert (len(found), count) == (candidates, plain)
        assert all("man" in answered(blank, vocabulary) and "`" not in blank.text for blank in found[:count])


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "unigram"])
@pytest.mark.parametrize("language", ["zh", "ja"])
def test_chinese_has_blanks_and_is_read_without_spaces(language: str, kind: str, tmp_path: Path) -> None:
    vocabulary = chinese_vocabulary(kind)
    found = hidden(tmp_path, [("p", "".join(CHINESE))], language, vocabulary)
    assert {answered(blank, vocabulary) for blank in found} == set(CHINESE)


def test_words_of_hindi_keep_their_vowels(tmp_path: Path) -> None:
    sentence = "मेरा भाई आज सुबह अपने दोस्त के साथ बाज़ार गया था।"
    vocabulary = train_vocabulary([sentence] * 40, size=120, lowercase=False)
    (blank,) = hidden(tmp_path, [("p", sentence)], "hi", vocabulary)
    assert answered(blank, vocabulary) == sentence and word_entries(vocabulary)[blank.ids[blank.position]] in sentence


def test_the_language_of_a_document_splits_its_sentences(tmp_path: Path) -> None:
    text = "Das alte Haus steht bzw. Oben auf dem Berg im Wald."
    vocabulary = train_vocabulary([text] * 5, size=300, lowercase=True)
    (german,) = hidden(tmp_path, [("p", text)], "de", vocabulary)
    assert german.text.endswith("Wald.") and german.text.startswith("Das" if "Das" in german.text else "____")
    assert [blank.text for blank in hidden(tmp_path, [("p", text)], "en", vocabulary)] != [german.text]


def test_unigram_counts_are_of_every_word_whatever_the_language(tmp_path: Path) -> None:
    vocabulary = train_vocabulary(CHINESE, size=120, lowercase=True)
    counts = unigram_counts(
        corpus_of(tmp_path, [("p", "".join(CHINESE))], "zh"), CachedTokenizer(vocabulary), vocabulary.size
    )
    assert counts[vocabulary.ids["去"]] == 4 and counts[vocabulary.ids["京"]] == 2
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
    all_six = [wrong[0], *right, wrong[1]]
    assert chosen(all_six, 6) == Blanks(
        random=all_six, surest=[right[2], right[1], right[3]], candidates=6, right=4, plain=6
    )
    assert chosen(wrong, 1) == Blanks(random=wrong, surest=[], candidates=2, right=0, plain=1)


def test_at_most_five_of_the_surest_and_ten_at_random_are_shown() -> None:
    many = [blank(f"text {number}", f"word {number}", f"word {number}", number / 100) for number in range(30)]
    found = chosen(many, 30)
    assert found.random == many[:10] and found.surest == many[:24:-1] and found.candidates == found.right == 30


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


@pytest.mark.parametrize(
    ("kind", "tokens", "words"),
    [
        ("wordpiece", ("[PAD]", "the", "##ing", "朋", "a1", "`", "[unused7]"), ["", "the", "", "朋", "", "", ""]),
        (
            "byte-bpe",
            ("[PAD]", "Ġthe", "the", "Ġ``", "æľĭåıĭ", "Ġæľĭåıĭ", "æľ"),
            ["", "the", "", "", "朋友", "朋友", ""],
        ),
        (
            "unigram",
            ("[PAD]", "▁the", "ing", "▁", "朋友", "▁caf\u00e9", "▁no."),
            ["", "the", "", "", "朋友", "café", ""],
        ),
    ],
)
def test_guesses_are_printed_as_words(kind: str, tokens: tuple[str, ...], words: list[str]) -> None:
    assert word_entries(Vocabulary(tokens=tokens, lowercase=False, kind=kind)) == words


def test_words_with_and_without_a_space_do_not_compete(tmp_path: Path) -> None:
    """Byte-level BPE has two entries of one word; guesses are of those like the answer, so that none is shown twice."""
    vocabulary = chinese_vocabulary("byte-bpe", separators=("", " "), size=350)
    torch.manual_seed(0)
    module = MaskedTokens(Model(layers=1, width=16, heads=2, feed_forward=32, maximum_positions=32), vocabulary.size)
    words = word_entries(vocabulary)
    after_space = [i for i, word in enumerate(words) if word and not vocabulary.continuation[i]]
    with torch.no_grad():
        module.masked_token_head.bias[after_space] = 20.0
    found = fill_in_the_blanks(
        module,
        corpus_of(tmp_path, [("p", "".join(CHINESE))], "zh"),
        CachedTokenizer(vocabulary),
        vocabulary,
        maximum_length=32,
        device=torch.device("cpu"),
    )
    assert found.candidates == 2
    for shown in found.random:
        guessed = [word for word, _ in shown.guesses]
        assert len(set(guessed)) == len(guessed) > 0
        assert all(probability < 0.01 for _, probability in shown.guesses), "all the rest are words after a space"
