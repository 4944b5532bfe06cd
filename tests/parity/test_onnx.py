"""ONNX graphs, float32 and int8, as onnxruntime runs them."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.errors import CheckpointError
from pipeline.export.int8 import check_int8, compare, deviation
from pipeline.export.onnx_graphs import EMBEDDING, FILL_MASK, OPSET, check_graphs
from pipeline.export.probe import probe
from pipeline.export.trained import load_trained
from pipeline.files import storage
from pipeline.model.families.bert import BERT
from pipeline.saved.checkpoints import folder_of

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")

main: Callable[[list[str]], int] = runpy.run_path(str(Path(__file__).parents[2] / "jobs" / "export.py"))["main"]
TEXTS = ["Kar kand, [MASK]!", "lost", "kap [MASK] mir nep sust tal kand lost mim, kar!"]


@pytest.fixture(scope="module")
def exported(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export the tiny run with the job, into onnx/ and int8/."""
    folder = tmp_path_factory.mktemp("exports")
    assert main([str(tiny_run), "--folder", str(folder), "--kinds", "onnx", "int8"]) == 0
    return folder


def inputs(folder: Path) -> dict[str, np.ndarray]:
    """The texts as transformers' tokenizer pads them."""
    return dict(transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="np"))


def test_the_folders_are_whole_and_say_how_they_were_checked(exported: Path, tiny_run: Path) -> None:
    for kind in ("onnx", "int8"):
        names = sorted(path.name for path in (exported / kind).iterdir())
        assert names == [
            "README.md",
            "config.json",
            "embedding.onnx",
            "fill_mask.onnx",
            "manifest.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.txt",
        ]
        assert storage.damage(str(exported / kind)) is None
        manifest = json.loads((exported / kind / "manifest.json").read_text())
        assert manifest["checkpoint"] == folder_of(str(tiny_run), 3) and manifest["checked"].startswith("checked: ")
        assert manifest["checked"] in (exported / kind / "README.md").read_text()


@pytest.mark.parametrize("name", [FILL_MASK, EMBEDDING])
def test_axes_are_free_and_the_opset_is_as_said(exported: Path, name: str) -> None:
    graph = onnx.load(exported / "onnx" / name)
    assert [(entry.domain, entry.version) for entry in graph.opset_import] == [("", OPSET)]
    session = onnxruntime.InferenceSession(exported / "onnx" / name)
    assert [(entry.name, entry.type, entry.shape) for entry in session.get_inputs()] == [
        (name, "tensor(int64)", ["batch", "length"]) for name in BERT.inputs
    ]
    size = json.loads((exported / "onnx" / "config.json").read_text())["vocab_size"]
    expected = ("logits", ["batch", "length", size]) if name == FILL_MASK else ("sentence_embedding", ["batch", 32])
    assert [(entry.name, entry.shape) for entry in session.get_outputs()] == [expected]


def test_logits_and_embeddings_are_those_of_transformers(exported: Path, tiny_run: Path) -> None:
    asked = inputs(exported / "onnx")
    kept = asked["attention_mask"].astype(bool)
    assert not kept.all()
    model = transformers.AutoModelForPreTraining.from_pretrained(folder_of(str(tiny_run), 3)).eval()
    with torch.inference_mode():
        tensors = {name: torch.from_numpy(values) for name, values in asked.items()}
        logits, hidden = model(**tensors).prediction_logits.numpy(), model.bert(**tensors).last_hidden_state.numpy()
    (ours,) = onnxruntime.InferenceSession(exported / "onnx" / FILL_MASK).run(None, asked)
    np.testing.assert_allclose(ours[kept], logits[kept], atol=1e-5)
    (vectors,) = onnxruntime.InferenceSession(exported / "onnx" / EMBEDDING).run(None, asked)
    np.testing.assert_allclose(vectors, [hidden[row, : mask.sum()].mean(0) for row, mask in enumerate(kept)], atol=1e-5)


def test_padding_changes_nothing(exported: Path) -> None:
    asked = inputs(exported / "onnx")
    session = onnxruntime.InferenceSession(exported / "onnx" / EMBEDDING)
    length = asked["attention_mask"][1].sum()
    (alone,) = session.run(None, {name: values[1:2, :length] for name, values in asked.items()})
    np.testing.assert_allclose(alone, session.run(None, asked)[0][1:2], atol=1e-6)


def test_graphs_of_another_checkpoint_are_found(exported: Path, tiny_run: Path) -> None:
    with pytest.raises(CheckpointError) as refused:
        check_graphs(exported / "onnx", load_trained(folder_of(str(tiny_run), 1)))
    assert str(refused.value).startswith(
        f"export {exported}/onnx/fill_mask.onnx: outputs differ from the checkpoint's by 0."
    )
    assert str(refused.value).endswith(" of the largest, more than 1e-05")


def test_int8_is_smaller_and_its_card_has_both_columns(exported: Path) -> None:
    card = (exported / "int8" / "README.md").read_text()
    rows = {
        cells[1]: cells[2:4]
        for line in card.splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) == 5
    }
    assert rows[""] == ["float32", "int8"]
    assert float(rows["megabytes, both graphs"][0]) > float(rows["megabytes, both graphs"][1])
    assert all(0 < float(cell) < 10 for cell in rows["held-out MLM loss, nats"])
    assert all(
        float(fifty) <= float(ninety_nine)
        for fifty, ninety_nine in zip(rows["latency p50, ms"], rows["latency p99, ms"], strict=True)
    )
    types = {
        kind: {
            tensor.data_type
            for tensor in onnx.load(exported / kind / FILL_MASK).graph.initializer
            if len(tensor.dims) == 2
        }
        for kind in ("onnx", "int8")
    }
    assert (
        onnx.TensorProto.FLOAT in types["onnx"] and onnx.TensorProto.FLOAT not in types["int8"]
    )  # the output weights too


def test_scores_are_recounted(exported: Path, tiny_run: Path) -> None:
    trained = load_trained(folder_of(str(tiny_run), 3))
    rows = [probe(trained.model, trained.vocabulary_size, [length]) for length in (5, 12, 31)]
    float32, int8 = compare(exported / "onnx", exported / "int8", rows, trained.model)
    with torch.inference_mode():
        logits = torch.cat([trained.module.predict_masked(batch) for batch in rows])
    labels = torch.cat([batch.masked_labels_M for batch in rows])
    assert float32.loss == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), rel=1e-5)
    assert float32.accuracy == (logits.argmax(-1) == labels).sum().item() / 48
    assert int8.loss == pytest.approx(float32.loss, rel=0.02) and int8.loss != float32.loss


def test_a_broken_int8_graph_is_found(exported: Path, tiny_run: Path, tmp_path: Path) -> None:
    for name in (FILL_MASK, EMBEDDING):
        graph = onnx.load(exported / "int8" / name)
        for tensor in graph.graph.initializer:
            if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) == 2:
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros(tensor.dims, np.int8), tensor.name))
        onnx.save(graph, tmp_path / name)
    trained = load_trained(folder_of(str(tiny_run), 3))
    assert check_int8(exported / "onnx", exported / "int8", trained).startswith(
        "checked: int8's logits differ from float32's by 0.0"
    )
    with pytest.raises(CheckpointError) as refused:
        check_int8(exported / "onnx", tmp_path, trained)
    assert str(refused.value).startswith(f"export {tmp_path}/fill_mask.onnx: int8's outputs differ from float32's by ")
    assert str(refused.value).endswith(
        " of their standard deviation, more than 0.5: this model cannot be quantised to 8 bits"
    )


def test_a_deviation_is_a_share_of_the_spread() -> None:
    ours = torch.tensor([1.0, -1.0, 1.0, -1.0])  # standard deviation sqrt(4/3)
    assert deviation(ours + 1, ours) == pytest.approx((3 / 4) ** 0.5)
    assert deviation(ours, ours) == 0 and np.isnan(deviation(ours * float("nan"), ours))
