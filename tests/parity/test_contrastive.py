"""Contrastive learning and the vectors of its export, as sentence-transformers computes them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

from pipeline import api
from pipeline.batch import Batch, collate
from pipeline.bench import vectors as bench_vectors
from pipeline.config.data import Sampling, TwoCrops
from pipeline.config.jobs import Pretrain
from pipeline.config.objective import Contrastive
from pipeline.config.training import AdamW
from pipeline.corpus.prepared import Corpus
from pipeline.embed.model import digest_of
from pipeline.errors import CheckpointError, DataError
from pipeline.export.card import Lineage
from pipeline.export.huggingface import export
from pipeline.files import storage
from pipeline.model.families.table import family_of
from pipeline.model.weights import to_published
from pipeline.objectives.contrastive import ContrastiveTexts
from pipeline.optim.build import build_optimizer
from pipeline.saved.run import record
from pipeline.text.schema import EXAMPLE
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.checkpoint import State, save
from pipeline.train.run_identity import identity
from pipeline.train.step import StepContext, backward
from tests.conftest import text_of

sentence_transformers = pytest.importorskip("sentence_transformers")

FIRST = [text_of(number)[:60] for number in range(9)]
SECOND = [text_of(number)[60:180] for number in range(9)]
NEGATIVES = [[text_of(number)[:40] for number in range(start, start + 9)] for start in (9, 18)]
CPU = torch.device("cpu")


def exported(
    config: Pretrain,
    pooling: str,
    folder: Path,
    corpus: Corpus,
    vocabulary: Vocabulary,
    sampling: Sampling = Sampling(maximum_length=32, pairs=TwoCrops()),  # noqa: B008 (it is frozen)
) -> tuple[Path, ContrastiveTexts]:
    """An export whose weights are far from where they start, and its module."""
    objective = Contrastive(pooling=pooling)
    config = replace(config, objective=objective, sampling=sampling)
    generator = torch.Generator().manual_seed(6)
    module = ContrastiveTexts(config.model, vocabulary.size, objective, generator)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.empty_like(parameter).normal_(std=0.1, generator=generator)
    saved = save(str(folder / "run"), State(step=7), module, build_optimizer(AdamW(), module), vocabulary)
    recorded = record(identity(config, corpus, vocabulary), 7, "0" * 32, "/gone/corpus")
    lineage = Lineage(name="contrast", recorded=recorded, summary=None, corpus=DataError("/gone/corpus is gone"))
    said = export(saved, str(folder / "export"), lineage)
    assert said == "checked: hidden states equal transformers' within 1e-05 of the largest"
    return folder / "export", module


def batch_of_pairs(folder: Path, *negatives: list[str]) -> Batch:
    """FIRST and SECOND as rows of one batch, each from a document of its own, with lists of a negative per row."""
    tokenizer = api.load(str(folder)).tokenizer
    rows = []
    for number, texts in enumerate(zip(FIRST, SECOND, *negatives, strict=True)):
        a, b, *wrong = (tokenizer.encode(text).ids for text in texts)
        given = {"negative_lengths": [len(ids) for ids in wrong] if wrong else None}
        fixed = {"masked_positions": [], "masked_labels": [], "document_a": 0, "document_b": 0}
        ids = [*a, *b[1:], *(id for ids in wrong for id in ids[1:])]
        rows.append(fixed | given | {"ids": ids, "first_length": len(a), "parent": number})
    return collate(pa.Table.from_pylist(rows, schema=EXAMPLE))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_of_an_export_are_those_of_sentence_transformers(
    tiny_config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path, pooling: str
) -> None:
    folder, module = exported(tiny_config, pooling, tmp_path, tiny_corpus, tiny_vocabulary)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(FIRST)
    ours = module.eval()(batch_of_pairs(folder))[:, 0].detach().numpy()
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)
    np.testing.assert_allclose(theirs, api.load(str(folder)).embed(FIRST), rtol=0, atol=1e-5)
    card = (folder / "README.md").read_text()
    assert "pipeline_tag: sentence-similarity" in card and "fill-mask" not in card
    assert f"contrastive learning on two crops of one document ({'[CLS]' * (pooling == 'cls') or 'mean'}" in card
    assert storage.read_json(str(folder / "config.json"))["architectures"] == ["BertModel"]


def test_the_bench_of_vectors_embeds_the_same_texts_with_every_side(
    tiny_config: Pretrain,
    tiny_corpus: Corpus,
    tiny_vocabulary: Vocabulary,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, _ = exported(tiny_config, "mean", tmp_path, tiny_corpus, tiny_vocabulary)
    (tmp_path / "texts.txt").write_text("\n".join(FIRST) + "\n")
    command = ["--checkpoint", str(folder), "--input", str(tmp_path / "texts.txt"), "--texts", "9"]
    bench_vectors.main([*command, "--repetitions", "1"])  # the speed of nine texts says nothing: 0 or 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    cosines = {line[0]: float(line[-1]) for line in lines[2:] if line[0] in {*bench_vectors.AIMS, bench_vectors.PEER}}
    assert {"float32", "int8", bench_vectors.PEER} <= set(cosines) and cosines["float32"] > 0.9999
    assert cosines["int8"] > 0.98


def test_prompts_of_an_export_are_those_of_sentence_transformers(
    tiny_config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    sampling = Sampling(maximum_length=32, pairs=TwoCrops(), query_prompt="ka: ", document_prompt="ti ta: ")
    folder, _ = exported(tiny_config, "mean", tmp_path, tiny_corpus, tiny_vocabulary, sampling)
    theirs, ours = sentence_transformers.SentenceTransformer(str(folder), device="cpu"), api.load(str(folder))
    for encode, prompt in ((theirs.encode_query, "ka: "), (theirs.encode_document, "ti ta: ")):
        np.testing.assert_allclose(encode(FIRST), ours.embed(FIRST, prompt=prompt), rtol=0, atol=1e-5)
    np.testing.assert_allclose(theirs.encode(FIRST), ours.embed(FIRST), rtol=0, atol=1e-5)
    assert np.abs(theirs.encode_query(FIRST) - theirs.encode(FIRST)).max() > 1e-3


def test_an_export_with_attention_is_ours_alone(
    tiny_config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    folder, module = exported(tiny_config, "attention", tmp_path, tiny_corpus, tiny_vocabulary)
    ours = module.eval()(batch_of_pairs(folder))[:, 0].detach().numpy()
    loaded = api.load(str(folder))
    np.testing.assert_allclose(loaded.embed(FIRST), ours, rtol=0, atol=1e-5)
    means = replace(loaded, recipe=replace(loaded.recipe, attention=None, pooling="mean"))
    assert np.abs(means.embed(FIRST) - ours).max() > 1e-2 and digest_of(means) != digest_of(loaded)
    with pytest.raises(Exception, match="bertstream"):
        sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    card = (folder / "README.md").read_text()
    assert "`sentence-transformers` cannot load this model" in card and "from sentence_transformers" not in card
    assert "- sentence-transformers" not in card and "(attention pooling, temperature 0.05)" in card
    save_file({"linear.weight": torch.zeros(1, 7)}, folder / "1_AttentionPooling" / "model.safetensors")
    (folder / "manifest.json").unlink()
    words = "the AttentionPooling of modules.json reads states of width 7, but the encoder's width is 32: restore"
    with pytest.raises(CheckpointError, match=words):
        api.load(str(folder))
    save_file({"linear.weight": torch.zeros(2, 32)}, folder / "1_AttentionPooling" / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"has 2 scores per state, but an AttentionPooling has one: restore the files"
    ):
        api.load(str(folder))


@pytest.mark.parametrize("negatives", [[], NEGATIVES])
def test_loss_and_gradients_are_those_of_sentence_transformers(
    without_dropout: Pretrain,
    tiny_corpus: Corpus,
    tiny_vocabulary: Vocabulary,
    tmp_path: Path,
    negatives: list[list[str]],
) -> None:
    """Nine pairs of one batch, also with two hard negatives each, against their cached loss in mini-batches of four."""
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    folder, module = exported(without_dropout, "mean", tmp_path, tiny_corpus, tiny_vocabulary)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu").train()
    loss = CachedMultipleNegativesRankingLoss(
        theirs,
        scale=1 / 0.05,
        mini_batch_size=4,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )
    total = loss([theirs.preprocess(texts) for texts in (FIRST, SECOND, *negatives)], torch.zeros(9))
    total.backward()
    compute = StepContext(device=CPU, autocast=torch.autocast("cpu", enabled=False), seed=0)
    module.negatives = len(negatives)
    slots = [(0, batch_of_pairs(folder, *negatives))]
    sums = backward(module.train(), slots, {"contrastive": 9}, compute, step=0)
    assert sums["contrastive"].item() / 9 == pytest.approx(total.item(), rel=1e-6)
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    ours = to_published(gradients, family_of(without_dropout.model))
    found = {f"bert.{name}": p.grad for name, p in theirs[0].auto_model.named_parameters() if "pooler" not in name}
    assert found.keys() == ours.keys()
    largest = max(gradient.abs().max().item() for gradient in found.values())
    for name, gradient in found.items():
        torch.testing.assert_close(ours[name], gradient, rtol=0, atol=1e-6 * max(largest, 1), msg=name)
