"""Text that is held out of the trainings: no pair of the training has it, and what it measures."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline import api
from pipeline.adapt import heldout as holding
from pipeline.adapt.comparison import NONE, Encode, _functions, compare, heldout_lines, searched_texts
from pipeline.adapt.evidence import READ_WINDOWS, TextPair, halves, pairs_of, unseen
from pipeline.adapt.heldout import DOCUMENTS, ENDS, hold_out, split_ends, tables, training_corpus
from pipeline.adapt.record import agree
from pipeline.adapt.start import read_start
from pipeline.config.data import AdjacentParagraphs, TitleParagraph, TwoCrops
from pipeline.config.embed import Embed
from pipeline.corpus.prepared import Corpus, Window, load_corpus, read_window
from pipeline.corpus.shards import write_windows
from pipeline.embed import model
from pipeline.errors import ConfigError
from pipeline.reporting import no_op
from pipeline.text.cached_tokenizer import CachedTokenizer
from pipeline.text.schema import DOCUMENT
from pipeline.text.vocabulary import Vocabulary
from tests.conftest import WORDS

Write = Callable[..., Corpus]


def paragraph(seed: int, words: int = 40) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words)) + "."


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function that writes a prepared corpus of documents of some pieces, each of some paragraphs."""

    def write(documents: int, pieces: int, paragraphs: int, heldout: int = 0) -> Corpus:
        folder, reports = str(tmp_path / "corpus"), {}
        for split, numbers in (("train", range(documents)), ("heldout", range(documents, documents + heldout))):
            rows = [
                {
                    "id": f"b.jsonl:{n}:d{n}#{piece}", "parent": f"b.jsonl:{n}:d{n}", "title": f"Title {n}",
                    "source": "b.jsonl", "lines_are_sentences": False, "language": "en",
                    "text": "\n".join(paragraph(10_000 * n + 100 * piece + p) for p in range(paragraphs)),
                }
                for n in numbers for piece in range(pieces)
            ]  # fmt: skip
            reports[split] = write_windows(folder, split, 0, pa.Table.from_pylist(rows, schema=DOCUMENT), 10**9)
        windows = {
            split: [[report["file"], group, *sizes] for group, sizes in enumerate(report["windows"])]
            for split, report in reports.items()
        }
        about = {"weight": 1, "files": 1, "dropped": {}}
        manifest = {"fingerprint": "f", "counts": {}, "dropped": {}, "sources": {"b.jsonl": about}} | windows
        (tmp_path / "corpus/manifest.json").write_text(json.dumps(manifest | {"settings": {}, "inputs": {}}))
        return load_corpus(folder)

    return write


@pytest.fixture
def tokenizer(tiny_vocabulary: Vocabulary) -> CachedTokenizer:
    return CachedTokenizer(tiny_vocabulary)


def trained_texts(corpus: Corpus) -> str:
    return "\n".join(text for table in tables(corpus, "train") for text in table["text"].to_pylist())


def test_held_out_documents_of_the_preparation_are_enough(
    write: Write, tokenizer: CachedTokenizer, tmp_path: Path
) -> None:
    corpus = write(30, 1, 2, heldout=110)
    heldout = hold_out(corpus, str(tmp_path), TitleParagraph(), tokenizer, 128)
    assert heldout.corpus is corpus and heldout.unit == DOCUMENTS and not (tmp_path / "training").exists()
    assert sorted(pair.query for pair in heldout.pairs) == sorted(f"Title {n}" for n in range(30, 140))
    assert not any(pair.text in trained_texts(corpus) for pair in heldout.pairs)


def test_of_a_large_corpus_only_some_training_windows_are_read(
    write: Write, tokenizer: CachedTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, read = write(1, 1, 2, heldout=110), list[Window]()
    large = replace(small, train=small.train * 90)

    def counted(corpus: Corpus, window: Window) -> pa.Table:
        read.append(window)
        return read_window(corpus, window)

    monkeypatch.setattr(holding, "read_window", counted)
    assert len(hold_out(large, str(tmp_path), TitleParagraph(), tokenizer, 128).pairs) == 110
    assert read.count(small.train[0]) == READ_WINDOWS


def test_a_tenth_of_the_documents_is_held_out_where_that_is_enough(
    write: Write, tokenizer: CachedTokenizer, tmp_path: Path
) -> None:
    corpus = write(40, 1, 16)
    heldout = hold_out(corpus, str(tmp_path), AdjacentParagraphs(), tokenizer, 128)
    assert heldout.unit == DOCUMENTS and heldout.corpus.folder == str(tmp_path / "training")
    held = {parent for table in tables(heldout.corpus, "heldout") for parent in table["parent"].to_pylist()}
    kept = {parent for table in tables(heldout.corpus, "train") for parent in table["parent"].to_pylist()}
    assert len(held) == 4 and len(kept) == 36 and not held & kept
    assert {pair.document for pair in heldout.pairs} == {parent.rpartition(":")[2] for parent in held}
    assert heldout.corpus.sources["b.jsonl"]["heldout_pieces"] == 4 and heldout.corpus.counts["heldout_pieces"] == 4
    again = hold_out(corpus, str(tmp_path), AdjacentParagraphs(), tokenizer, 128)
    assert again == heldout and training_corpus(corpus, str(tmp_path)) == heldout.corpus


def test_the_ends_of_a_few_books_are_held_out(write: Write, tokenizer: CachedTokenizer, tmp_path: Path) -> None:
    """Two books of ten pieces with fifty paragraphs: the last five paragraphs of each piece are in no training."""
    corpus = write(2, 10, 50)
    heldout = hold_out(corpus, str(tmp_path), TitleParagraph(), tokenizer, 128)
    assert heldout.unit == ENDS and heldout.kind == AdjacentParagraphs()  # the titles are in training pairs
    trained = trained_texts(heldout.corpus)
    assert len(heldout.pairs) >= 20 and {pair.document for pair in heldout.pairs} == {"d0", "d1"}
    assert not any(pair.query in trained or pair.text in trained for pair in heldout.pairs)
    ends = "\n".join(text for table in tables(heldout.corpus, "heldout") for text in table["text"].to_pylist())
    assert sorted(f"{trained}\n{ends}".split("\n")) == sorted(trained_texts(corpus).split("\n"))
    assert heldout.corpus.fingerprint != corpus.fingerprint


def test_too_little_text_has_no_comparison(
    write: Write, tokenizer: CachedTokenizer, tmp_path: Path, tiny_run: Path
) -> None:
    corpus = write(5, 1, 3)
    heldout = hold_out(corpus, str(tmp_path), TitleParagraph(), tokenizer, 128)
    assert heldout.pairs == () and heldout.corpus is corpus and not (tmp_path / "training").exists()
    assert heldout_lines(str(tmp_path), heldout, {}, read_start(str(tiny_run)), no_op) == [NONE] and "--queries" in NONE


def test_an_end_begins_after_a_line_or_between_words() -> None:
    row = {"id": "a#0", "parent": "a", "title": "", "source": "", "lines_are_sentences": False, "language": "en"}
    texts = ["a" * 4_000 + "\n" + "b" * 600, "words " * 1_000, "short\ntext", "c" * 9_000]
    table = pa.Table.from_pylist([row | {"text": text} for text in texts], schema=DOCUMENT)
    train, ends = split_ends(table)
    assert train["text"].to_pylist() == ["a" * 4_000, ("words " * 901).strip(), "short\ntext", "c" * 9_000]
    assert ends["text"].to_pylist() == ["b" * 600, ("words " * 99).strip()]
    assert ends["id"].to_pylist() == ["a#0/end"] * 2


def test_pairs_that_the_training_repeats_are_left_out(write: Write, tokenizer: CachedTokenizer) -> None:
    corpus = write(2, 1, 2)
    own = [TextPair(query="Title 1", text="x", document="d"), TextPair(query="y", text=paragraph(10_001), document="d")]
    own.append(TextPair(query="y", text=paragraph(10_001)[9:90], document="d"))  # a part of a line
    new = TextPair(query="Title 2", text="kar", document="d")
    assert unseen([*own, new], tables(corpus, "train")) == [new]


def test_halves_do_not_overlap(write: Write, tokenizer: CachedTokenizer) -> None:
    assert list(halves("kar lost\nmir  nest")) == [("kar lost", "mir nest")]
    assert list(halves("x" * 1_000)) == [("x" * 250, "x" * 250)] * 2 and list(halves(" ")) == []
    made = pairs_of(tables(write(3, 1, 1), "train"), TwoCrops(), tokenizer, 32)
    assert {f"{pair.query} {pair.text}" for pair in made} == {paragraph(10_000 * n) for n in range(3)}


def test_measures_are_means_over_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    """Three pairs; the other text is found at ranks 1, 2 and 1 before, and at rank 1 after."""
    pairs = [TextPair(query=f"q{n}", text=f"t{n}", document=f"d{n}") for n in range(3)]
    texts = searched_texts(
        pairs, [TextPair(query="", text="t1", document="d1"), TextPair(query="", text="o", document="e")], 4
    )
    assert texts.texts == ("t0", "t1", "t2", "o") and texts.documents == ("d0", "d1", "d2", "e")
    after = np.eye(4, dtype=np.float32)
    before = after.copy()
    before[1] = [0, 0.6, 0.8, 0]

    def encoder(queries: np.ndarray) -> Encode:
        return lambda texts, prompts: queries[: len(texts)] if prompts == ("query",) else np.eye(4, dtype=np.float32)

    lines = compare(pairs, texts, {"untouched": encoder(before), "adapted": encoder(after)})
    values = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("untouched ", "adapted "))}
    # (1 + 1 / log2(3) + 1) / 3
    assert values == {"untouched": ["87.7", "100.0"], "adapted": ["100.0", "100.0"]}
    assert "ndcg@10 of adapted minus untouched: +12.3 (0.0 to 36.9)" in lines
    assert "recall@10 of adapted minus untouched: +0.0 (0.0 to 0.0)" in lines
    assert any(line.startswith("\nq1 (untouched: its text has rank 2)") for line in lines)
    assert any(line.startswith("\nq1 (adapted: its text has rank 1)") for line in lines)


def test_an_encoder_is_loaded_once_for_both_prompts(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, load = list[model.VectorModel](), model.load

    def load_with_prompts(*given: Any) -> model.VectorModel:
        plain = load(*given)
        recipe = replace(plain.model.recipe, prompts={"query": "kar ", "passage": "lost "})
        loaded.append(replace(plain, model=replace(plain.model, recipe=recipe)))
        return loaded[-1]

    monkeypatch.setattr(model, "load", load_with_prompts)
    encode = _functions({"untouched": Embed(checkpoint=str(tiny_run), input="", output="")})["untouched"]
    vectors = [encode(["mir"], names) for names in (("query",), ("document", "passage"))]
    right = api.load(str(tiny_run)).embed(["kar mir", "lost mir"], "")
    np.testing.assert_allclose(np.concatenate(vectors), right, atol=1e-6)
    assert len(loaded) == 1


def test_outputs_of_an_earlier_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "adapt.json").write_text('{"seed": 0, "init.digest": "d", "masked_steps": 100}')
    with pytest.raises(ConfigError) as refused:
        agree(str(tmp_path), {"seed": 0, "init.digest": "d", "version": 2})
    assert str(refused.value) == (
        f"output ({tmp_path}) was begun by another version of this job, which held no text out of the training: "
        "choose another --output"
    )
