import hashlib
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config.data import FullSentences, NextSentence, Sampling, SentenceOrder, SingleSegment, WholeWordMasking
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.examples import assemble, make_examples
from pipeline.text.randomness import generator, numbered_generator
from pipeline.text.schema import DOCUMENT, EXAMPLE
from pipeline.text.sequences import Sequences
from pipeline.text.splitting import SPECIALS
from pipeline.text.training import train_vocabulary
from pipeline.text.vocabulary import Vocabulary

WORDS = tuple(f"{a}{b}" for a in "bcdfg" for b in "aeiou")
WORDPIECE = CachedTokenizer(Vocabulary(tokens=(*SPECIALS, ".", *WORDS), lowercase=True))
SAMPLING = Sampling(maximum_length=32)


def table(*texts: tuple[str, str], lines: bool = True) -> pa.Table:
    """Documents as (parent, text)."""
    rows = [
        {
            "id": str(n),
            "parent": p,
            "title": "",
            "text": t,
            "source": "test",
            "lines_are_sentences": lines,
            "language": "en",
        }
        for n, (p, t) in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=DOCUMENT)


def text(rng: np.random.Generator, sentences: int) -> str:
    return "\n".join(" ".join(rng.choice(WORDS, rng.integers(1, 9))) + "." for _ in range(sentences))


def corpus() -> pa.Table:
    rng = np.random.default_rng(0)
    return table(*((f"parent {n % 5}", text(rng, int(rng.integers(1, 30)))) for n in range(12)))


def make(
    documents: pa.Table, sampling: Sampling = SAMPLING, seed: int = 0, epoch: int = 0, window: int = 0
) -> pa.Table:
    return make_examples(documents, WORDPIECE, sampling, seed=seed, epoch=epoch, window=window)


def digest(examples: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, examples.schema) as writer:
        writer.write_table(examples)
    return hashlib.sha256(sink.getvalue()).hexdigest()


def restored(row: dict) -> list[int]:
    ids = list(row["ids"])
    for position, label in zip(row["masked_positions"], row["masked_labels"], strict=True):
        ids[position] = label
    return ids


def test_generators_are_philox_with_the_counter_at_window_and_epoch() -> None:
    state = generator(seed=5, epoch=7, window=9, purpose="pairs").bit_generator.state["state"]
    assert state["counter"].tolist() == [0, 0, 9, 7] and state["key"][0] == 5
    assert generator(2**63 - 1, 2**40, 2**40, "rows").random() < 1


def test_every_number_and_purpose_has_its_own_stream() -> None:
    base = {"seed": 1, "epoch": 1, "window": 1, "purpose": "pairs"}
    others = [
        base,
        base | {"seed": 2},
        base | {"epoch": 2},
        base | {"window": 2},
        base | {"purpose": "rows"},
        base | {"epoch": 0, "window": 2},
    ]
    assert len({generator(**arguments).integers(2**62) for arguments in others}) == len(others)
    assert generator(**base).integers(2**62) == generator(**base).integers(2**62)


def test_an_example_by_hand() -> None:
    """One document of two sentences: [CLS] ba be . [SEP] bi . [SEP]; 0.15 * 8 tokens = 1.2, so one mask."""
    [row] = make(table(("p", "Ba be.\n\nBI."))).to_pylist()
    ids = WORDPIECE.vocabulary.ids
    assert restored(row) == [2, ids["ba"], ids["be"], 5, 3, ids["bi"], 5, 3]
    assert (row["first_length"], row["not_next"], row["document_a"], row["document_b"]) == (5, False, 0, 0)
    assert len(row["masked_positions"]) == 1 and row["masked_positions"][0] in (1, 2, 3, 5, 6)


BYTES = CachedTokenizer(
    train_vocabulary(["the cats sat on mats and the dogs ran"] * 9, size=300, lowercase=False, kind="byte-bpe")
)


def pieces(row: dict) -> list[str]:
    return [BYTES.vocabulary.tokens[id] for id in restored(row)]


def test_a_pair_of_two_separators_by_hand() -> None:
    documents = table(("p", "the cats sat"), ("p", "on mats\nthe dogs ran"))
    sampling = Sampling(maximum_length=32, pairs=SentenceOrder())
    [row] = make_examples(documents, BYTES, sampling, seed=0, epoch=0, window=0).to_pylist()
    a, b = ["on", "Ġmats"], ["Ġthe", "Ġdogs", "Ġran"]
    a, b = (b, a) if row["swapped"] else (a, b)
    whole = pieces(row)
    assert "".join(whole) == "".join(["<s>", *a, "</s>", "</s>", *b, "</s>"])
    assert "".join(whole[row["first_length"] :]) == "".join([*b, "</s>"])


@pytest.mark.parametrize("pairs", [NextSentence(short_probability=0.5), SentenceOrder(short_probability=0.5)])
def test_pairs_of_two_separators_are_never_too_long(pairs: NextSentence | SentenceOrder) -> None:
    rows = make_examples(corpus(), BYTES, Sampling(maximum_length=20, pairs=pairs), seed=0, epoch=0, window=0)
    lengths = [len(ids) for ids in rows["ids"].to_pylist()]
    assert max(lengths) == 20 and len(lengths) > 20
    sep = BYTES.vocabulary.sep_id
    for row in rows.to_pylist():
        separators = [place for place, id in enumerate(restored(row)) if id == sep]
        assert separators == [row["first_length"] - 2, row["first_length"] - 1, len(row["ids"]) - 1]


def test_full_sentences_of_bytes_are_the_running_text_by_hand() -> None:
    """Paragraphs begin without a space, further sentences with one, and documents end with one separator."""
    documents = table(
        ("p", "the cats sat. On the mats.\nThe dogs ran. On mats."), ("q", "the end is near."), lines=False
    )
    sampling = Sampling(maximum_length=128, pairs=FullSentences())
    [row] = make_examples(documents, BYTES, sampling, seed=0, epoch=0, window=0).to_pylist()
    assert "".join(pieces(row)) == ("<s>theĠcatsĠsat.ĠOnĠtheĠmats.TheĠdogsĠran.ĠOnĠmats.</s>theĠendĠisĠnear.</s>")
    lines = ["the cats sat. On the mats.", "The dogs ran. On mats.", "the end is near."]
    expected = [BYTES.vocabulary.tokenizer().encode(line).ids for line in lines]
    assert restored(row) == [0, *expected[0], *expected[1], 2, *expected[2], 2]


def test_the_first_word_of_a_paragraph_is_masked_as_a_word() -> None:
    """Without the mark of its begin, "The" would be the end of "mats." before it."""
    documents = table(("p", "the mats.\nThe dogs\nran"), lines=False)
    begins = []
    for seed in range(60):
        sampling = Sampling(maximum_length=128, pairs=FullSentences(), masking=WholeWordMasking(share=0.3))
        [row] = make_examples(documents, BYTES, sampling, seed=seed, epoch=0, window=0).to_pylist()
        masked, whole = set(row["masked_positions"]), pieces(row)
        last = whole.index("ran") if "ran" in whole else None
        assert last is not None
        begins.append((last in masked, last - 1 in masked))
    assert {(True, False), (False, True)} <= set(begins)


def test_sequences_are_assembled_by_hand() -> None:
    """Ranges at both ends of the tokens, and sequences of two, one and three ranges."""
    fields = {
        "starts": [4, 0, 3, 0, 1, 5],
        "ends": [6, 1, 6, 1, 3, 6],
        "offsets": [0, 2, 3, 6],
        "document_a": [1, 0, 0],
        "document_b": [0, 1, 0],
    }
    sequences = Sequences(**{name: np.array(values) for name, values in fields.items()})
    ids, offsets = assemble(np.array([10, 11, 12, 13, 14, 15], np.int32), sequences, WORDPIECE.vocabulary)
    assert ids.tolist() == [2, 14, 15, 3, 10, 3, 2, 13, 14, 15, 3, 2, 10, 3, 11, 12, 3, 15, 3] and ids.dtype == np.int32
    assert offsets.tolist() == [0, 6, 11, 19] and offsets.dtype == np.int64
    assert sequences.starts.tolist() == fields["starts"]


@pytest.mark.parametrize("sampling", [SAMPLING, Sampling(maximum_length=20, masking=WholeWordMasking())])
def test_every_row_keeps_the_rules(sampling: Sampling) -> None:
    documents = corpus()
    examples = make(documents, sampling)
    assert examples.schema == EXAMPLE and examples.num_rows > 50
    examples.validate(full=True)
    parents = documents["parent"].to_pylist()
    encoded = [WORDPIECE.encode([t.replace("\n", " ")])[0].tolist() for t in documents["text"].to_pylist()]
    for row in examples.to_pylist():
        ids = restored(row)
        first = row["first_length"]
        assert len(ids) <= sampling.maximum_length and ids[0] == 2 and ids[first - 1] == 3 and ids[-1] == 3
        a, b = ids[1 : first - 1], ids[first:-1]
        for segment, document in ((a, encoded[row["document_a"]]), (b, encoded[row["document_b"]])):
            assert segment and not set(segment) & {0, 2, 3, 4}
            assert any(document[i : i + len(segment)] == segment for i in range(len(document)))
        assert row["not_next"] == (parents[row["document_a"]] != parents[row["document_b"]])
        assert row["masked_positions"] == sorted(set(row["masked_positions"]))
    assert {row["not_next"] for row in examples.to_pylist()} == {True, False}


def test_sentence_order_pairs_say_whether_they_are_swapped() -> None:
    documents = corpus()
    rows = make(documents, Sampling(maximum_length=32, pairs=SentenceOrder())).to_pylist()
    encoded = [WORDPIECE.encode([t.replace("\n", " ")])[0].tolist() for t in documents["text"].to_pylist()]
    for row in rows:
        ids, first = restored(row), row["first_length"]
        a, b = ids[1 : first - 1], ids[first:-1]
        text = encoded[row["document_a"]]
        assert row["not_next"] is None and row["document_a"] == row["document_b"] and len(ids) <= 32
        if len(ids) < 32:  # nothing was cut
            assert any(text[i : i + len(a + b)] == (b + a if row["swapped"] else a + b) for i in range(len(text)))
    assert {row["swapped"] for row in rows} == {True, False}


@pytest.mark.parametrize("pairs", [FullSentences(), FullSentences(across_documents=False), SingleSegment()])
def test_sequences_without_a_pair_task_hold_all_of_the_text_once(pairs: FullSentences | SingleSegment) -> None:
    documents = corpus()
    examples = make(documents, Sampling(maximum_length=32, pairs=pairs))
    examples.validate(full=True)
    rows = examples.to_pylist()
    for row in rows:
        assert row["not_next"] is None and row["swapped"] is None
        assert row["first_length"] == len(row["ids"]) <= 32 and row["ids"][0] == 2 and row["ids"][-1] == 3
        assert row["ids"].count(3) == 1 + row["document_b"] - row["document_a"]
    expected = WORDPIECE.encode([t.replace("\n", " ") for t in documents["text"].to_pylist()])[0]
    ours = [i for row in rows for i in restored(row) if i not in (2, 3)]
    assert np.bincount(ours).tolist() == np.bincount(expected).tolist()


def test_rows_are_in_random_order() -> None:
    """Fifteen thousand pairs of neighbouring rows: half of them rise."""
    documents = table(*((str(n), "ba.\nbe.") for n in range(3_000)))
    places = make(documents)["document_a"].to_numpy()
    assert abs((np.diff(places) > 0).mean() - 0.5) < 0.03 and len(set(places.tolist())) == 3_000


def test_seed_epoch_and_window_change_the_examples_and_nothing_else_does() -> None:
    documents = corpus()
    assert digest(make(documents)) == digest(make(documents))
    chunked = pa.concat_tables([documents.slice(0, 5), documents.slice(5)])
    assert digest(make(chunked)) == digest(make(documents))
    assert (
        len({digest(make(documents, **{name: 1})) for name in ("seed", "epoch", "window")} | {digest(make(documents))})
        == 4
    )


def test_masks_do_not_change_the_pairs() -> None:
    documents = corpus()
    one, other = make(documents), make(documents, Sampling(maximum_length=32, masking=WholeWordMasking(share=0.3)))
    assert one["ids"] != other["ids"]
    assert [restored(row) for row in one.to_pylist()] == [restored(row) for row in other.to_pylist()]


def test_another_process_makes_the_same_bytes() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(__file__.rsplit('/', 1)[0])!r}); import test_examples as t; "
        "print(t.digest(t.make(t.corpus(), seed=3)))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out.strip() == digest(make(corpus(), seed=3))


def test_a_window_that_yields_no_example_gives_an_empty_table() -> None:
    for documents in (table(), table(("p", "ba.")), table(("p", "\x00"), ("q", "\u200b"))):
        examples = make(documents)
        assert examples.num_rows == 0 and examples.schema == EXAMPLE


def test_documents_that_are_not_a_sentence_a_line_are_split() -> None:
    short = Sampling(maximum_length=32, pairs=NextSentence(short_probability=0))
    assert make(table(("p", "Ba be. Bi bo."), lines=False), short).num_rows == 1
    assert make(table(("p", "Ba be. Bi bo."), lines=True), short).num_rows == 0


def test_numbered_streams_are_those_of_earlier_fine_tunings() -> None:
    assert numbered_generator(3, 7_001).integers(1_000, size=4).tolist() == [680, 122, 847, 117]
    assert numbered_generator(0, 1 << 32).permutation(6).tolist() == [0, 3, 2, 5, 4, 1]


def test_fixed_copies_are_shown_again_with_the_same_pairs_and_masks() -> None:
    copied = Sampling(maximum_length=32, copies=3)
    digests = [digest(make(corpus(), copied, epoch=epoch)) for epoch in range(7)]
    assert len(set(digests)) == 3 and digests[3:] == digests[:4]
    assert digests[:3] == [digest(make(corpus(), SAMPLING, epoch=epoch)) for epoch in range(3)]
    assert digest(make(corpus(), SAMPLING, epoch=3)) not in digests
