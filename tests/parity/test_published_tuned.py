"""Fine-tuned models that transformers wrote, asked here and there: the same answers from the same folder."""

from pathlib import Path

import pytest
import torch

from jobs.score import main as score
from pipeline.fine_tuned.answers import answer_items, items_of
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.tuned import TunedModel
from pipeline.model.weights import published_config
from pipeline.objectives.logits import compute_logits
from pipeline.tasks.kinds import KINDS
from pipeline.text.vocabulary_saving import save_vocabulary
from tests.parity.families import FAMILIES, ROWS, shaken

transformers = pytest.importorskip("transformers")

CPU, EXACT = torch.device("cpu"), torch.autocast("cpu", enabled=False)
TEXTS = ["The house, the Straße.", "housing", "a very long word: donaudampfschiff ABC", "Été? été -", "the " * 60]
SECONDS = ["is it the house?", "no", "The House", "a", "b"]
POSITIONS = 40
SEQUENCES, TAGS, SPANS = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"


def published(folder: Path, name: str, head: str, seed: int = 3, **config: object) -> str:
    """A tiny model of a family with a head and random weights, as transformers writes it, with its vocabulary."""
    row = ROWS[name]
    vocabulary = row.vocabulary()
    said = published_config(row.settings, vocabulary.size, vocabulary.pad_id) | config
    made = getattr(transformers, f"{row.prefix}Config")(**said)
    shaken(getattr(transformers, f"{row.prefix}{head}")(made), seed).save_pretrained(folder)
    if row.settings.family in ("roberta", "modernbert", "longformer") or vocabulary.kind != "wordpiece":
        save_vocabulary(vocabulary, folder, 512, row.settings.segments)
        return str(folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocabulary.tokens), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        '{"do_lower_case": %s, "model_max_length": 512}' % ("true" if vocabulary.lowercase else "false")
    )
    return str(folder)


def their_model(folder: str, head: str):
    """transformers' model and tokenizer of a folder."""
    automatic = {
        SEQUENCES: transformers.AutoModelForSequenceClassification,
        TAGS: transformers.AutoModelForTokenClassification,
        SPANS: transformers.AutoModelForQuestionAnswering,
    }
    # RoBERTa's tokenizer takes words only where each has a space before it.
    words = {"add_prefix_space": True} if head == TAGS else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **words)
    return automatic[head].from_pretrained(folder).eval(), tokenizer


def their_logits(
    folder: str, head: str, first: list[str], second: list[str] | None = None
) -> "transformers.utils.ModelOutput":
    """Return the output of transformers' model with this head, for inputs of its own tokenizer with its padding."""
    model, tokenizer = their_model(folder, head)
    asked = tokenizer(first, second, padding=True, truncation=True, max_length=POSITIONS, return_tensors="pt")
    with torch.no_grad():
        return model(**asked)


def answers(tuned: TunedModel, columns: dict[str, list[str]]) -> list[dict]:
    return answer_items(tuned, items_of(tuned, columns), CPU, EXACT).to_pylist()


@pytest.mark.parametrize("name", ["bert", "bert-cased", "roberta", "electra"])
@pytest.mark.parametrize("second", [None, SECONDS])
def test_classes_have_their_probabilities_and_names(tmp_path: Path, name: str, second: list[str] | None) -> None:
    head, labels = SEQUENCES, {0: "bad", 1: "so so", 2: "good"}
    folder = published(
        tmp_path, name, head, id2label=labels, label2id={name: number for number, name in labels.items()}
    )
    tuned = open_tuned(folder)
    assert (tuned.about.task.kind, tuned.about.task.labels) == ("classification", ("bad", "so so", "good"))
    expected = their_logits(folder, head, TEXTS, second).logits.softmax(-1)
    for one, shares in zip(
        answers(tuned, {"text": TEXTS} | ({"second": second} if second else {})), expected, strict=True
    ):
        assert one["label"] == labels[int(shares.argmax())]
        assert list(one["probabilities"]) == list(labels.values())
        torch.testing.assert_close(torch.tensor(list(one["probabilities"].values())), shares, atol=1e-5, rtol=1e-5)


SEVERAL = {"num_labels": 3, "problem_type": "multi_label_classification"}


@pytest.mark.parametrize(
    ("name", "config", "kind"),
    [
        ("bert", {"num_labels": 1}, "regression"),
        ("bert", {"num_labels": 1, "problem_type": "regression"}, "regression"),
        *((name, SEVERAL, "multilabel") for name in FAMILIES),
    ],
)
def test_values_and_several_labels(tmp_path: Path, name: str, config: dict, kind: str) -> None:
    head = SEQUENCES
    folder = published(tmp_path, name, head, **config)
    tuned, logits = open_tuned(folder), their_logits(folder, head, TEXTS).logits
    found = answers(tuned, {"text": TEXTS})
    assert tuned.about.task.kind == kind
    if kind == "regression":
        torch.testing.assert_close(torch.tensor([one["score"] for one in found]), logits[:, 0], atol=1e-5, rtol=1e-5)
        return
    shares = logits.sigmoid()
    torch.testing.assert_close(
        torch.tensor([list(one["probabilities"].values()) for one in found]), shares, atol=1e-5, rtol=1e-5
    )
    assert [one["labels"] for one in found] == [
        [f"LABEL_{number}" for number in range(3) if row[number] >= 0.5] for row in shares
    ]


@pytest.mark.parametrize("name", ["bert-cased", "roberta", "electra"])
def test_tags_of_words(tmp_path: Path, name: str) -> None:
    labels = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}
    folder = published(tmp_path, name, TAGS, id2label=labels)
    tuned, sentences = open_tuned(folder), [text.split() for text in TEXTS[:4]]
    model, tokenizer = their_model(folder, TAGS)
    found = answers(tuned, {"words": sentences})
    for words, one in zip(sentences, found, strict=True):
        asked = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**asked).logits[0]
        of_words = asked.word_ids()
        assert one["tags"] == [labels[int(logits[of_words.index(place)].argmax())] for place in range(len(words))]
        task = tuned.about.task
        prepared = KINDS["tags"].prepare(
            task, items_of(tuned, {"words": [words]}), tuned.vocabulary, tuned.about.cutting
        )
        torch.testing.assert_close(
            torch.from_numpy(compute_logits(tuned.module, prepared.rows, CPU, EXACT)[0]), logits, atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("name", FAMILIES)
def test_spans_of_questions(tmp_path: Path, name: str) -> None:
    head, question, context = SPANS, "the house?", "A house, and the Straße."
    folder = published(tmp_path, name, head)
    tuned = open_tuned(folder)
    assert (tuned.about.cutting.maximum_length, tuned.about.cutting.question_length) == (40, 10)
    output = their_logits(folder, head, [question], [context])
    items = items_of(tuned, {"question": [question], "context": [context]})
    prepared = KINDS["spans"].prepare(tuned.about.task, items, tuned.vocabulary, tuned.about.cutting)
    both = torch.from_numpy(compute_logits(tuned.module, prepared.rows, CPU, EXACT)[0])
    torch.testing.assert_close(
        both, torch.stack([output.start_logits[0], output.end_logits[0]], -1), atol=1e-5, rtol=1e-5
    )
    _, tokenizer = their_model(folder, head)
    asked = tokenizer(question, context, return_offsets_mapping=True)
    own = [place for place, part in enumerate(asked.sequence_ids()) if part == 1]
    start, end = max(
        ((a, b) for a in own for b in own if a <= b), key=lambda ends: float(both[ends[0], 0] + both[ends[1], 1])
    )
    first, last = asked["offset_mapping"][start][0], asked["offset_mapping"][end][1]
    first += context[first:last].startswith(" ")  # a piece may begin with a space, and an answer does not
    one = answers(tuned, {"question": [question], "context": [context]})[0]
    assert (one["start"], one["end"], one["answer"]) == (first, last, context[first:last])


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_labelled_file_is_scored_with_labels_that_nobody_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    head = SEQUENCES
    folder = published(tmp_path / "model", name, head, num_labels=2)
    said = their_logits(folder, head, TEXTS).logits.argmax(-1).tolist()
    lines = [f'"{text}",{label}\n' for text, label in zip(TEXTS, said)]
    (tmp_path / "a.csv").write_text(
        "text,label\n"
        + "".join(lines)
        + f'"house",{1 - their_logits(folder, head, ["house"]).logits.argmax(-1).item()}\n'
    )
    assert score(["--checkpoint", folder, "--input", str(tmp_path / "a.csv")]) == 0
    found = capsys.readouterr().out.splitlines()
    assert found[0].endswith(
        "a.csv: 6 rows, 1 cut at 40 tokens (--cutting.passages reads the rest), computed in float32"
    )
    assert found[2].split()[:2] == ["accuracy", "83.33"]


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_of_half_precision_weights_the_answers_are_those_in_float32(tmp_path: Path, name: str) -> None:
    folder = published(tmp_path, name, SEQUENCES, num_labels=3)
    model, tokenizer = their_model(folder, SEQUENCES)
    model.half().save_pretrained(folder)
    with torch.no_grad():
        asked = tokenizer(TEXTS[:2], padding=True, return_tensors="pt")
        # A new model, because half() also rounds the rotary frequencies of the old one.
        again = type(model).from_pretrained(folder, dtype=torch.float32).eval()
        expected = again(**asked).logits.softmax(-1)
    found = torch.tensor(
        [list(one["probabilities"].values()) for one in answers(open_tuned(folder), {"text": TEXTS[:2]})]
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_without_a_word_about_lower_case_it_is_transformers_choice(tmp_path: Path) -> None:
    head = SEQUENCES
    folder = published(tmp_path, "bert", head, num_labels=2)
    (tmp_path / "tokenizer_config.json").unlink()
    expected = their_logits(folder, head, TEXTS).logits.softmax(-1)
    found = torch.tensor([list(one["probabilities"].values()) for one in answers(open_tuned(folder), {"text": TEXTS})])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
