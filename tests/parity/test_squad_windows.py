"""Windows of questions and contexts against transformers' tokenizer."""

from pathlib import Path

import pytest

from pipeline.tables.squad import Question
from pipeline.tasks.pieces import Tokenization
from pipeline.tasks.windows import Windowing, windows
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ENTRIES = (*SPECIALS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "##ing", "rain", *".,?!-'\"()–£力加")
VOCABULARIES = [
    Vocabulary(tokens=ENTRIES, lowercase=True),
    Vocabulary(tokens=(*ENTRIES, *"ÉTZK", "The"), lowercase=False),
]
SENTENCE = (
    "The café in Köln (24–10) cost £20,980; the raining, Zoë's cafe\u0301 力加 🤖 "
    "wasn't\u00a0there.\tNo\nline\u200bend\x07 İ ß! "
)
CONTEXTS = ["", " ", "The.", SENTENCE, SENTENCE * 4, SENTENCE * 11, "x" * 500]
QUESTIONS = ["", "Rain?", "  What did the café in Köln cost, and why?", "İ 🤖 \u200b ß"]
CUTS = [
    Windowing(),
    Windowing(maximum_length=64, stride=16, question_length=40),
    Windowing(maximum_length=48, stride=0, question_length=40),
]


@pytest.mark.parametrize("windowing", CUTS, ids=str)
@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=["uncased", "cased"])
def test_windows_are_those_of_transformers(vocabulary: Vocabulary, windowing: Windowing, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    save_vocabulary(vocabulary, tmp_path, 512)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    questions = [
        Question(id="", question=question, context=context, answers=())
        for question in QUESTIONS
        for context in CONTEXTS
    ]
    ours = [window for of_question in windows(Tokenization(vocabulary), questions, windowing) for window in of_question]
    theirs = tokenizer(
        [question.question for question in questions],
        [question.context for question in questions],
        truncation="only_second",
        max_length=windowing.maximum_length,
        stride=windowing.stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    assert [window.ids.tolist() for window in ours] == theirs["input_ids"] and len(ours) > len(questions)
    assert [[0] * window.first_length + [1] * (len(window.ids) - window.first_length) for window in ours] == theirs[
        "token_type_ids"
    ]
    for place, window in enumerate(ours):
        offsets = [
            tuple(pair)
            for pair, sequence in zip(theirs["offset_mapping"][place], theirs.sequence_ids(place))
            if sequence == 1
        ]
        assert list(zip(window.starts.tolist(), window.ends.tolist())) == offsets
        assert list(range(*window.context.indices(len(window.ids)))) == [
            token for token, sequence in enumerate(theirs.sequence_ids(place)) if sequence == 1
        ]


def test_a_long_question_is_cut_as_transformers_cuts_it(tmp_path: Path) -> None:
    """To as many pieces as it keeps of the question alone."""
    transformers = pytest.importorskip("transformers")
    save_vocabulary(VOCABULARIES[0], tmp_path, 512)
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    question = Question(id="", question=SENTENCE * 3, context=SENTENCE, answers=())
    theirs = tokenizer(question.question, truncation=True, max_length=66)["input_ids"]
    (ours,) = windows(Tokenization(VOCABULARIES[0]), [question])[0]
    assert ours.ids[: ours.first_length].tolist() == theirs and ours.first_length == 66
