"""A family next to a BERT of its shape: same sizes and batches, counted parameters, measured memory."""

from dataclasses import replace

import pytest
import torch

from pipeline.presets.table import PRESETS
from tests.benchmarks import shape
from tests.benchmarks.shape import Setting, main, parameters, table

SETTING = Setting(family="albert", size="tiny", rows=2, length=8, precision="float32")


def test_the_bert_beside_has_the_shape_and_dropout_of_the_family() -> None:
    large = replace(SETTING, size="large")
    assert large.beside["bert"] == replace(PRESETS["bert-large"].model, hidden_dropout=0.0, attention_dropout=0.0)
    assert large.beside["albert"] == PRESETS["albert-large"].model
    assert replace(SETTING, family="roberta").beside["bert"] == replace(
        PRESETS["bert-tiny"].model, layer_norm_epsilon=1e-5
    )


def test_parameters_by_hand() -> None:
    # Two layers of width 128 with feed-forward width 512: 4 * 128 * 129 + 128 * 513 + 512 * 129 + 4 * 128 each. The
    # embeddings have 30,522 + 512 + 2 rows and a norm. Then come the pooler, the masked-token head and the pair head.
    layer, rows, norm, pooler = 198_272, 31_036, 2 * 128, 128 * 129
    heads = 128 * 129 + norm + 30_522 + 2 * 129
    assert parameters(SETTING, "bert") == rows * 128 + norm + 2 * layer + pooler + heads
    # ALBERT: one layer, embeddings of width 64, a projection, and a masked-token head of width 64.
    heads = 129 * 64 + 2 * 64 + 30_522 + 2 * 129
    assert parameters(SETTING, "albert") == rows * 64 + 2 * 64 + 65 * 128 + layer + pooler + heads


def test_both_models_have_the_chosen_layers_also_in_the_process_that_measures_memory() -> None:
    deep = replace(SETTING, family="longformer", layers=5)
    assert [model.layers for model in deep.beside.values()] == [5, 5] and Setting.of(*deep.words) == deep
    assert Setting.of(*SETTING.words) == SETTING
    taught = replace(SETTING, family="distilbert", bert_layers=6)
    assert [model.layers for model in taught.beside.values()] == [6, 1] and Setting.of(*taught.words) == taught
    added = parameters(deep, "longformer") - parameters(replace(deep, layers=4), "longformer")
    # A layer of Longformer also has query, key and value for global tokens, which pretraining does not train.
    assert added == 198_272 + 3 * 128 * 129


@pytest.mark.second
def test_memory_is_measured_in_a_process_of_its_own() -> None:
    # The optimiser keeps two copies of the parameters, and there is at least one gradient. The system may reclaim pages
    # of libraries meanwhile, which makes a figure too low.
    figures = (shape.peak_bytes(SETTING, "bert", "training") for _ in range(3))
    assert any(16 * parameters(SETTING, "bert") < figure < 1e9 for figure in figures)


def test_the_table_ends_with_ratios(capsys: pytest.CaptureFixture[str]) -> None:
    lines = table({"bert": [10, 4, 4, 100, 50], "albert": [5, 3, 1, 110, 40]}).splitlines()
    assert lines[-1].split() == ["albert", "/", "bert", "0.50", "0.75", "0.25", "1.10", "0.80"]
    rates = shape.speeds(SETTING, "answering", torch.device("cpu"), 1)
    assert set(rates) == {"bert", "albert"} and min(rates.values()) > 0
    with pytest.raises(SystemExit):
        main(["xlarge", "--family", "roberta"])
    assert "invalid choice" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["medium"])
    assert "size (medium) has no preset albert-medium" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["tiny", "--family", "bigbird", "--length", "2048"])
    assert "--length (2048) must be at most 1024, the positions" in capsys.readouterr().err
