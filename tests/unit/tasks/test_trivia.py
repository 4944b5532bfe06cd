"""TriviaQA: questions with aliases and evidence, and its official scores by hand."""

import json
from pathlib import Path

import pytest

from jobs.score import main as score
from pipeline.errors import DataError
from pipeline.tables.squad import Question
from pipeline.tasks import questions
from pipeline.tasks.answers import Answer, Span
from pipeline.tasks.benchmarks import TASKS
from pipeline.tasks.known import read_items
from pipeline.tasks.metrics.squad import best_of, normalised
from pipeline.tasks.prepared import Prepared
from pipeline.tasks.schema import ENCODED
from pipeline.tasks.trivia import alias_place, normalised_as_trivia

WIKIPEDIA, WEB = TASKS["triviaqa-wikipedia"], TASKS["triviaqa-web"]
ROWS = """
Who wrote The Salt Road?|ada venn;a venn|Ada Venn|The Salt Road is a novel by Ada Venn, a nurse.
Which lake is deepest in Orland?|lake murra;murra|Lake Murra|Of all lakes in Orland, Lake Murra is the deepest.
In which year did the Ember Line open?|1884|1884|The line was opened in 1884.
Which metal are carillon bells made of?|bronze|Bronze|Carillons have bells of BRONZE.
Who painted The Blue Mill?|jon hale;hale jon|Jon Hale|It was painted by one J. Hale, whom nobody knew.
What is the capital of Orland?|port sand;port sand city|Port Sand|Orland is ruled from Port-Sand City.
Which bird nests in chimneys?|stork;storks|Stork|Storks nest there. A stork may live thirty years.
What do you call a small mountain lake?|tarn|Tarn|A tarn is small and lies high. Tarnish is another thing.
Which river runs through Port Sand?|o nile;river o nile|O'Nile|The O’Nile runs through the town.
Who founded the bakery of Orland?|ines roth|Ines Roth|Ines  Roth founded it.
How many stations has the Ember Line?|14;fourteen|14|There are fourteen of them, not 140.
Which tree is on the flag?|elm;elm tree|Elm|The elm tree is green.
What is sold at the harbour?|fish;fishes|Fish|Fishermen sell fish.
Which game was played in 1902?|chess|Chess|They played chess.
Who rowed the strait alone?|lena skov|Lena Skov|Lena Skov rowed it.
Which key is the anthem in?|g major|G major|It is in G major.
What covers the roof of the mill?|straw;thatch|Straw|Its roof is of thatch.
Which month has the fair?|june|June|The fair is in June.
What is the mill made of?|stone|Stone|The mill is of stone.
Which day is the market?|monday|Monday|On a Monday.
"""


def rows() -> list[list[str]]:
    return [row.split("|") for row in ROWS.strip().split("\n")]


def trivia(folder: Path, domain: str = "Wikipedia") -> Path:
    """Files of one domain; the first question has two documents, and its second has another answer."""
    key, of_key = ("EntityPages", "wikipedia") if domain == "Wikipedia" else ("SearchResults", "web")
    evidence = folder / "triviaqa-rc" / "evidence" / of_key
    evidence.mkdir(parents=True)
    data = []
    for number, (question, aliases, value, text) in enumerate(rows()):
        files = [f"{number}.txt"] + (["0_b.txt"] if number == 0 else [])
        (evidence / files[0]).write_text(text)
        answer = {
            "Aliases": [value],
            "NormalizedAliases": aliases.split(";"),
            "NormalizedValue": aliases.split(";")[0],
            "Type": "FreeForm",
            "Value": value,
        }
        documents = [{"DocSource": "TagMe", "Filename": file, "Title": "T"} for file in files]
        data.append({"Answer": answer, key: documents, "Question": question, "QuestionId": f"tc_{number}"})
    data[3]["Answer"]["HumanAnswers"] = ["The Alloy, bronze"]
    (evidence / "0_b.txt").write_text("A. Venn was born in Orland.")
    whole = {"Data": data, "Domain": domain, "Split": "dev", "VerifiedEval": False, "Version": 1.0}
    (folder / "triviaqa-rc" / "qa").mkdir()
    for split in ("train", "dev"):
        (folder / "triviaqa-rc" / "qa" / f"{domain.lower()}-{split}.json").write_text(json.dumps(whole))
    return folder


def test_a_question_of_wikipedia_has_all_its_evidence_and_aliases(tmp_path: Path) -> None:
    items, notes = read_items(WIKIPEDIA, str(trivia(tmp_path)), "dev")
    assert notes == ("1 questions scored by the text of an answer that is not at its offset",)
    assert [item.id for item in items] == [f"tc_{n}" for n in range(20)]
    context = "The Salt Road is a novel by Ada Venn, a nurse.\n\nA. Venn was born in Orland."
    answers = (("Ada Venn", 28), ("ada venn", -1), ("venn", -1))
    assert items[0] == Question(id="tc_0", question="Who wrote The Salt Road?", context=context, answers=answers)
    places = [item.answers[0] for item in items]
    # Case, punctuation and quotes do not matter; parts of words are no answers; the longest alias is taken.
    assert places[3] == ("BRONZE", 24) and places[5] == ("Port-Sand City", 21) and places[8] == ("O’Nile", 4)
    assert places[6] == ("Storks", 0) and places[10] == ("fourteen", 10) and places[11] == ("elm tree", 4)
    assert places[4] == ("jon hale", -1) and places[12] == ("fish", 15)
    assert items[3].answers[1:] == (("bronze", -1), ("alloy bronze", -1))
    for item in (item for item in items if item.answers[0][1] >= 0):
        assert item.context.startswith(*item.answers[0])


def test_training_leaves_out_questions_whose_evidence_has_no_alias(tmp_path: Path) -> None:
    items, notes = read_items(WIKIPEDIA, str(trivia(tmp_path)), "train")
    assert len(items) == 19 and "tc_4" not in [item.id for item in items]
    assert notes == ("1 questions left out (answer-not-at-its-offset)",)


def test_a_question_of_the_web_is_asked_of_each_document(tmp_path: Path) -> None:
    items, _ = read_items(WEB, str(trivia(tmp_path, "Web")), "dev")
    assert len(items) == 21 and [item.id for item in items[:2]] == ["tc_0--0.txt", "tc_0--0_b.txt"]
    assert items[0].context == rows()[0][3] and items[1].answers[0] == ("Venn", 3)


def test_scores_by_hand(tmp_path: Path) -> None:
    items, _ = read_items(WIKIPEDIA, str(trivia(tmp_path)), "dev")
    texts = {"tc_0": "Venn, Ada", "tc_3": "an alloy: (bronze)", "tc_5": "Port-Sand", "tc_8": "The River O`Nile!"}
    asked = [item for item in items if item.id in texts]
    spans = {key: Span(text=text, start=0, end=len(text), logit=1.0) for key, text in texts.items()}
    answers = {key: Answer(spans=(span,), null=0.0) for key, span in spans.items()}
    prepared = Prepared(items=asked, rows=ENCODED.empty_table())
    # tc_0: both words of an alias in another order, F1 1 and no match. The others match an alias, "alloy bronze", "port
    # sand" and "river o nile".
    assert questions.score(WIKIPEDIA, prepared, answers, {}) == {"exact": 0.75, "f1": 1.0}
    assert questions.baseline(WIKIPEDIA, prepared, prepared) == {"exact": 0.0, "f1": 0.0}
    # SQuAD's script deletes the hyphen, so that "portsand" is another word.
    assert best_of("Port-Sand", asked[2], False)[0] == 0.0
    assert best_of("port", asked[2], False, normalised_as_trivia) == (0.0, pytest.approx(2 / 3))


def test_normalisation_makes_punctuation_a_space() -> None:
    assert normalised_as_trivia(" The_O’Nile's  (an)  End. ") == "o nile s end"
    assert normalised("The_O’Nile's (an) End.") == "theo’niles end"


def test_no_alias_no_place() -> None:
    assert alias_place("text", []) is None and alias_place("text", ["the", ""]) is None
    assert alias_place("return the urn, urns", ["urn"]) == (11, 14) and alias_place("urns", ["urn"]) is None
    text = "He wrote The Lord of the Rings."
    assert alias_place(text, [normalised_as_trivia("The Lord of the Rings")]) == (13, 30)
    assert alias_place("a+b is c++", ["c"]) == (7, 8) and alias_place("rain.cat", ["rain cat"]) == (0, 8)


def test_missing_evidence_and_other_files_are_named(tmp_path: Path) -> None:
    folder = trivia(tmp_path)
    (folder / "triviaqa-rc" / "evidence" / "wikipedia" / "7.txt").unlink()
    words = r"wikipedia-dev.json: Data\[7\].EntityPages: .*/evidence/wikipedia has no file '7.txt', the evidence"
    with pytest.raises(DataError, match=words):
        read_items(WIKIPEDIA, str(folder), "dev")
    items, notes = read_items(WIKIPEDIA, str(folder), "dev", skip=True)
    assert (
        len(items) == 19 and items[7].id == "tc_8" and notes[0].startswith("1 rows left out (no-evidence, the first: ")
    )
    file = folder / "triviaqa-rc" / "qa" / "wikipedia-dev.json"
    for content, message in (
        ("{", "is not valid JSON"),
        ('{"Domain": 1}', "has no Domain of type str: give a"),
    ):
        file.write_text(content)
        with pytest.raises(DataError, match=message):
            read_items(WIKIPEDIA, str(folder), "dev")


def test_a_file_of_answers_is_scored_as_by_the_official_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trivia(tmp_path)
    (tmp_path / "answers.json").write_text(json.dumps({"tc_5": "Port-Sand", "tc_13": "a game of chess"}))
    asked = ["--predictions", str(tmp_path / "answers.json"), "--task", "triviaqa-wikipedia", "--data", str(folder)]
    assert score(asked) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    # One of 20 answers matches; of the other's three words without the article, one is right: F1 1/2.
    assert ["exact", "5.000"] in lines and ["f1", "7.500"] in lines
