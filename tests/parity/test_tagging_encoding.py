"""Pieces of words against transformers' tokenizer, and labels against the way that its examples align them."""

from pathlib import Path

import pytest

from pipeline.tasks.pieces import Tokenization
from pipeline.tasks.tagging import IGNORED, Sentence, Tagging, encode
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ENTRIES = (*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "##ing", "rain", *".,?!-'\"()–£力加")
VOCABULARIES = [
    Vocabulary(tokens=ENTRIES, lowercase=True),
    Vocabulary(tokens=(*ENTRIES, *"ÉTZK", "The"), lowercase=False),
]
WORDS = (
    "The",
    "café",
    "U.S.",
    "\u200b",
    "Köln",
    "24–10",
    "",
    "cafe\u0301",
    "力加",
    "🤖",
    "wasn't",
    "a\u00a0b",
    "İ",
    "raining",
    "\x07",
    "ß",
    "x" * 40,
    ".",
)
SENTENCES = [WORDS[:1], WORDS[3:4], WORDS, WORDS[::-1], WORDS * 4]
NAMES = ("O", "B-X", "I-X")


def tagged(words: tuple[str, ...]) -> Sentence:
    return Sentence(words=words, tags=tuple(NAMES[place % 3] for place in range(len(words))))


@pytest.mark.parametrize(
    "tagging", [Tagging(), Tagging(maximum_length=24, stride=8), Tagging(maximum_length=512)], ids=str
)
@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=["uncased", "cased"])
def test_windows_are_those_of_transformers(vocabulary: Vocabulary, tagging: Tagging, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save_vocabulary(vocabulary, tmp_path, 512)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    ours = [
        window
        for of_sentence in encode(Tokenization(vocabulary), [tagged(words) for words in SENTENCES], NAMES, tagging)
        for window in of_sentence
    ]
    theirs = tokenizer(
        [list(words) for words in SENTENCES],
        is_split_into_words=True,
        truncation=True,
        max_length=tagging.maximum_length,
        stride=tagging.stride,
        return_overflowing_tokens=True,
    )
    assert [window.ids.tolist() for window in ours] == theirs["input_ids"] and len(ours) >= len(SENTENCES)
    assert [[None if word < 0 else word for word in window.words] for window in ours] == [
        theirs.word_ids(place) for place in range(len(ours))
    ]


@pytest.mark.parametrize("label_all_pieces", [False, True])
def test_labels_are_aligned_as_in_the_examples_of_transformers(label_all_pieces: bool, tmp_path: Path) -> None:
    """Theirs, run_ner.py's: by word, a word's later pieces ignored or with I- for B-. In one window, where all labels
    stand.
    """
    transformers = pytest.importorskip("transformers")
    save_vocabulary(VOCABULARIES[0], tmp_path, 512)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    sentence = tagged(WORDS)
    (ours,) = encode(
        Tokenization(VOCABULARIES[0]), [sentence], NAMES, Tagging(maximum_length=512, label_all_pieces=label_all_pieces)
    )[0]
    words = tokenizer(list(WORDS), is_split_into_words=True).word_ids()
    later = {"O": 0, "B-X": 2, "I-X": 2} if label_all_pieces else dict.fromkeys(NAMES, IGNORED)
    theirs = [
        IGNORED if word is None else later[sentence.tags[word]] if word == before else NAMES.index(sentence.tags[word])
        for before, word in zip([None, *words], words)
    ]
    assert ours.labels.tolist() == theirs
