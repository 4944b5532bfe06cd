"""Penn Treebank files: trees become words with tags."""

import gzip
from pathlib import Path

import pytest

from pipeline.config.finetune import Truncation
from pipeline.errors import DataError
from pipeline.tasks.benchmarks import TASKS
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.known import read_items, split_location, with_labels
from pipeline.tasks.tagging import PredictedTags, Sentence
from pipeline.tasks.treebank import read_treebank
from pipeline.text.splitting import SPECIALS
from pipeline.text.vocabulary import Vocabulary

TREES = """
( (S
    (NP-SBJ (DT The) (NN ferry) )
    (VP (VBD left)
      (NP-TMP (NNP Monday) ))
    (. .) ))
( (S
    (NP-SBJ-1 (PRP She) )
    (VP (VBD wanted)
      (S
        (NP-SBJ (-NONE- *-1) )
        (VP (TO to)
          (VP (VB row) (ADVP (RB home) )))))
    (. .) ))
( (NP (-LRB- -LRB-) (NN map) (-RRB- -RRB-) (CD 1\\/2) ))
( (S (-NONE- *) ))
( (FRAG (RB Not) (ADVP (RB today)) (. !) ))
( (S (NP-SBJ (DT The) (NN baker) ) (VP (VBZ sells) (NP (NN bread) )) (. .) ))
( (S (NP-SBJ (NNS Bells) ) (VP (VBP ring) (PP-TMP (IN at) (NP (NN noon) ))) (. .) ))
( (SINV (VP (VBD Came) ) (NP-SBJ (DT the) (NN rain) ) (. .) ))
( (S (NP-SBJ (PRP He) ) (VP (MD may) (VP (VB sail) (NP-TMP (RB tomorrow) ))) (. .) ))
( (SBARQ (WHNP-1 (WP Who) ) (SQ (NP-SBJ (-NONE- *T*-1) ) (VP (VBD rang) )) (. ?) ))
( (S (NP-SBJ (CD Two) (NNS boats) ) (VP (VBD sank) ) (. .) ))
( (S (NP-SBJ (PRP$ Her) (NN map) ) (VP (VBZ is) (ADJP-PRD (JJ old) )) (. .) ))
( (S (`` ``) (NP-SBJ (PRP We) ) (VP (VBP agree) ) (, ,) ('' '') (NP (PRP they) ) (VP (VBD said) ) (. .) ))
( (S (NP-SBJ (NN Snow) ) (VP (VBD fell) (ADVP (RB softly) )) (. .) ))
( (NP (NP (NN tea) ) (CC and) (NP (NN salt) )))
( (S (NP-SBJ (DT A) (NN dog) ) (VP (VBD barked) ) (: ;) ))
( (S (NP-SBJ (EX There) ) (VP (VBD was) (NP-PRD (DT no) (NN wind) )) (. .) ))
( (S (NP-SBJ (-NONE- *) ) (VP (VB Close) (NP (DT the) (NN gate) )) (. !) ))
( (S (NP-SBJ (NNP Ines) ) (VP (VBZ rows) (ADVP (RBR faster) )) (. .) ))
( (S (NP-SBJ (DT The) (NN mill) ) (VP (VBD cost) (NP ($ $) (CD 90) (-NONE- *U*) )) (. .) ))
( (S (NP-SBJ (DT Both) ) (VP (VBD left) ) (. .) ))
"""
POS = TASKS["ptb-pos"]
EXPECTED = [
    Sentence(words=("The", "ferry", "left", "Monday", "."), tags=("DT", "NN", "VBD", "NNP", ".")),
    Sentence(words=("She", "wanted", "to", "row", "home", "."), tags=("PRP", "VBD", "TO", "VB", "RB", ".")),
    Sentence(words=("-LRB-", "map", "-RRB-", r"1\/2"), tags=("-LRB-", "NN", "-RRB-", "CD")),
    Sentence(words=("Not", "today", "!"), tags=("RB", "RB", ".")),
    *(
        Sentence(words=tuple(words.split()), tags=tuple(tags.split()))
        for words, tags in (
            ("The baker sells bread .", "DT NN VBZ NN ."),
            ("Bells ring at noon .", "NNS VBP IN NN ."),
            ("Came the rain .", "VBD DT NN ."),
            ("He may sail tomorrow .", "PRP MD VB RB ."),
            ("Who rang ?", "WP VBD ."),
            ("Two boats sank .", "CD NNS VBD ."),
            ("Her map is old .", "PRP$ NN VBZ JJ ."),
            ("`` We agree , '' they said .", "`` PRP VBP , '' PRP VBD ."),
            ("Snow fell softly .", "NN VBD RB ."),
            ("tea and salt", "NN CC NN"),
            ("A dog barked ;", "DT NN VBD :"),
            ("There was no wind .", "EX VBD DT NN ."),
            ("Close the gate !", "VB DT NN ."),
            ("Ines rows faster .", "NNP VBZ RBR ."),
            ("The mill cost $ 90 .", "DT NN VBD $ CD ."),
            ("Both left .", "DT VBD ."),
        )
    ),
]


def treebank(folder: Path, text: str = TREES) -> Path:
    """All sections, each with the same file; section 03 has a compressed second one."""
    wsj = folder / "treebank_3" / "parsed" / "mrg" / "wsj"
    for section in range(25):
        path = wsj / f"{section:02}" / f"wsj_{section:02}01.mrg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (wsj / "03" / "readme").write_text("no trees")
    (wsj / "03" / "wsj_0302.mrg.gz").write_bytes(gzip.compress(b"( (NP (NN rain)))"))
    return wsj


def test_sections_are_split_as_is_usual_for_tagging(tmp_path: Path) -> None:
    treebank(tmp_path)
    train, dev, test = (read_items(POS, str(tmp_path), split)[0] for split in ("train", "dev", "test"))
    assert dev == test == EXPECTED * 3 and len(EXPECTED) == 20 and len(train) == 19 * 20 + 1
    assert train[3 * 20 : 5 * 20 + 1] == [*EXPECTED, Sentence(words=("rain",), tags=("NN",)), *EXPECTED]
    assert {split.name: (split.sections[0], split.sections[-1]) for split in POS.splits} == {
        "train": ("00", "18"),
        "dev": ("19", "21"),
        "test": ("22", "24"),
    }
    assert split_location(str(tmp_path), POS.split("dev")) is not None


def test_accuracy_per_word_by_hand(tmp_path: Path) -> None:
    treebank(tmp_path)
    items = read_items(POS, str(tmp_path), "dev")[0][:2]
    task = with_labels(POS, items)
    assert task.labels == (".", "DT", "NN", "NNP", "PRP", "RB", "TO", "VB", "VBD") and task.metrics == ("accuracy",)
    vocabulary = Vocabulary(tokens=(*SPECIALS, "a"), lowercase=True)
    prepared = KINDS["tags"].prepare(task, items, vocabulary, Truncation(maximum_length=16, stride=4))
    tags = (("DT", "NN", "VBD", "NN", "."), ("PRP", "VBD", "TO", "VB", "NN", "VB"))
    answers = [PredictedTags(tags=row, unseen=0) for row in tags]
    assert KINDS["tags"].score(task, prepared, answers, {}) == {"accuracy": pytest.approx(8 / 11)}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("( (NP (NN a)))\n( (NP (NN b))\n", 2),
        ("( (NP (NN a))))\n", 1),
        ("\n( (NP (NN a) b))\n", 2),
        ("(NN a)\n", 1),
        ("\nword\n", 2),
    ],
)
def test_brackets_that_do_not_match_are_named_by_line(tmp_path: Path, text: str, line: int) -> None:
    wsj = treebank(tmp_path, text)
    words = rf"wsj_0001.mrg:{line}: the brackets do not match here; give files of trees such as \( \(S "
    with pytest.raises(DataError, match=words):
        read_treebank(str(wsj), ("00",))


def test_a_missing_section_is_named(tmp_path: Path) -> None:
    wsj = treebank(tmp_path)
    with pytest.raises(
        DataError,
        match=r"wsj/25 has no files that end in .mrg: .*/wsj has 00, 01, .*; give the unpacked treebank, with a folder "
        r"of files for each section$",
    ):
        read_treebank(str(wsj), ("00", "25"))
