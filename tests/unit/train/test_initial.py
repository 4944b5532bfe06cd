"""A published model as the start of a run: what is taken of it, what is refused and in what words, and rows of new
words by hand.
"""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline.config.data import VocabularySettings
from pipeline.config.jobs import Pretrain
from pipeline.config.model import Model
from pipeline.config.model_parts import RotaryPositions
from pipeline.config.objective import Replaced
from pipeline.config.training import AdamW
from pipeline.errors import CheckpointError, ConfigError, DataError, PipelineError
from pipeline.model.families.bert import BERT
from pipeline.model.weights import published_config, to_published
from pipeline.objectives.table import Pretraining, build_objective, trained_parts
from pipeline.optim.build import build_optimizer
from pipeline.saved.model import open_saved
from pipeline.saved.pretrained import load_published
from pipeline.saved.weights import padding_rows
from pipeline.text.extension import extend_vocabulary
from pipeline.text.vocabulary import Vocabulary
from pipeline.text.vocabulary_saving import save_vocabulary
from pipeline.train.building import set_word_embeddings
from pipeline.train.checkpoint import State, save
from pipeline.train.initial import POOLER, Initial, agreed_model, extended_state, load_initial, read_initial

HEADS = ("bert.pooler.", "cls.")


def loaded(initial: Initial, config: Pretrain) -> Pretraining:
    """The module of a run, its parts drawn from torch's global generator where the model lacks them."""
    module = build_objective(config.objective, config.sampling, config.model, initial.vocabulary.size)
    load_initial(initial, module)
    return module


@pytest.fixture
def published(training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path) -> Path:
    """A whole BertForPreTraining with its tokenizer."""
    folder = tmp_path / "published"
    folder.mkdir()
    save_file(to_published(training.module(tiny_config).state_dict(), BERT), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(published_config(tiny_config.model, tiny_vocabulary.size, 0)))
    save_vocabulary(tiny_vocabulary, folder, 32)
    return folder


@pytest.fixture
def config(tiny_config: Pretrain, published: Path, tmp_path: Path) -> Pretrain:
    return replace(tiny_config, init=str(published), output=str(tmp_path / "out"))


def change(folder: Path, changed: Callable[[dict], dict]) -> None:
    save_file(changed(load_file(folder / "model.safetensors")), folder / "model.safetensors")


def without(*beginnings: str) -> Callable[[dict], dict]:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if not name.startswith(beginnings)}


def read(config: Pretrain, report: Callable[[str], None], **options: Any) -> Initial:
    return read_initial(str(config.init), config.vocabulary, config.output, report, **options)


def refusal(config: Pretrain, kind: type[Exception] = CheckpointError) -> str:
    with pytest.raises(kind) as refused:
        read(config, print)
    return str(refused.value).replace(str(config.init), "MODEL")


def test_messages_name_the_setting_of_the_job(config: Pretrain, published: Path) -> None:
    lines: list[str] = []
    read(config, lines.append, setting="checkpoint")
    assert lines[0].startswith(f"checkpoint: weights of {published}, ")
    (published / "config.json").write_text("no JSON")
    with pytest.raises(CheckpointError, match=rf"^checkpoint {published}: config.json "):
        read(config, print, setting="checkpoint")


def test_a_whole_checkpoint_is_taken_as_it_is(
    config: Pretrain, training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary
) -> None:
    lines: list[str] = []
    initial = read(config, lines.append)
    assert (initial.model, initial.vocabulary) == (tiny_config.model, tiny_vocabulary)
    expected = training.module(tiny_config).state_dict()
    found = loaded(initial, config).state_dict()
    assert found.keys() == expected.keys() and all(
        torch.equal(found[name], tensor) for name, tensor in expected.items()
    )
    assert lines == [f"init: weights of {config.init}, {tiny_vocabulary.size} word embeddings"]
    assert read(config, print) == initial


ELECTRA = pytest.mark.parametrize("family_config", ["electra"], indirect=True)


@pytest.fixture
def with_generator(training, family_config: Pretrain, tiny_vocabulary: Vocabulary, tmp_path: Path) -> Pretrain:
    """A run that starts from a checkpoint of ELECTRA, which has the files of an export."""
    module = training.module(replace(family_config, seed=5))
    folder = save(str(tmp_path), State(step=1), module, build_optimizer(AdamW(), module), tiny_vocabulary)
    (Path(folder) / "manifest.json").unlink()
    return replace(family_config, init=folder, output=str(tmp_path / "out"))


def parts_of(config: Pretrain) -> tuple[str, ...]:
    return trained_parts(config.objective, config.sampling)


@ELECTRA
def test_a_generator_beside_the_model_is_taken_with_it(training, with_generator: Pretrain) -> None:
    lines: list[str] = []
    initial = read(with_generator, lines.append, used=parts_of(with_generator))
    entries = initial.vocabulary.size
    assert lines == [f"init: weights of {with_generator.init} and its generator, {entries} word embeddings"]
    expected = training.module(replace(with_generator, seed=5)).state_dict()
    found = loaded(initial, with_generator).state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
    settings = training.module(with_generator).generator.encoder.settings
    assert initial.generator is not None and initial.generator.width == settings.width == 8
    with_generator.objective.require_generator(with_generator.model, initial.generator, "MODEL")
    with pytest.raises(ConfigError) as refused:
        Replaced(generator_share=0.5).require_generator(with_generator.model, initial.generator, "MODEL")
    assert str(refused.value) == (
        "objective.generator_share (0.5) gives a generator with width 16, but the generator of init MODEL has 8: "
        "set objective.generator_share 0.25"
    )


@ELECTRA
def test_a_model_without_a_generator_starts_with_one_at_random(with_generator: Pretrain) -> None:
    before = read(with_generator, print, used=parts_of(with_generator))
    shutil.rmtree(Path(str(with_generator.init), "generator"))
    lines: list[str] = []
    initial = read(with_generator, lines.append, used=parts_of(with_generator))
    assert lines[0].endswith("word embeddings; generator not in the model, so initialised at random")
    assert initial.generator is None and initial.folder != before.folder
    torch.manual_seed(5)
    found = loaded(initial, with_generator).state_dict()
    torch.manual_seed(6)
    again = loaded(initial, with_generator).state_dict()
    drawn = {name for name in found if not torch.equal(found[name], again[name])}
    assert drawn and all(name.startswith("generator.") and ".embeddings." not in name for name in drawn)
    read(with_generator, lines.append, used=(POOLER,))
    assert lines[1].endswith(f"{initial.vocabulary.size} word embeddings"), "fine-tuning has no generator"


@ELECTRA
def test_another_generator_has_another_fingerprint_and_one_that_does_not_fit_is_refused(
    with_generator: Pretrain,
) -> None:
    used, generator = parts_of(with_generator), Path(str(with_generator.init), "generator")
    first = read(with_generator, print, used=used)
    change(generator, lambda tensors: tensors | {"generator_lm_head.bias": tensors["generator_lm_head.bias"] + 1})
    second = read(with_generator, print, used=used)
    assert first.fingerprint != second.fingerprint and first.folder != second.folder
    words = "electra.embeddings.word_embeddings.weight"
    change(generator, lambda tensors: tensors | {words: tensors[words] + 1})
    with pytest.raises(CheckpointError) as refused:
        read(with_generator, print, used=used)
    assert str(refused.value) == (
        f"init {with_generator.init}: tensor encoder.embeddings.words.weight of the generator differs from the "
        f"model's, but training shares it between both: set objective.embedding_sharing gradient-disentangled"
    )
    # Trained with embeddings of its own, the discriminator starts from the difference to the generator's.
    initial = read(with_generator, print, used=used, shares_embeddings=False)
    own = replace(with_generator, objective=Replaced(embedding_sharing="gradient-disentangled"))
    state = loaded(initial, own).state_dict()
    assert (state["encoder.embeddings.words.weight"] + 1).abs().max() < 1e-6


def test_other_weights_have_another_fingerprint(config: Pretrain, published: Path) -> None:
    first = read(config, print)
    change(published, lambda tensors: tensors | {"cls.predictions.bias": tensors["cls.predictions.bias"] + 1})
    second = read(config, print)
    assert first.fingerprint != second.fingerprint and first.folder != second.folder
    moved = shutil.copytree(published, published.with_name("moved"))
    assert read(replace(config, init=str(moved)), print).fingerprint == second.fingerprint


def test_a_damaged_copy_is_made_again(config: Pretrain) -> None:
    initial = read(config, print)
    Path(initial.folder, "model.safetensors").write_bytes(b"flipped")
    assert read(config, print) == initial
    loaded(initial, config)


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (
            ("cls.seq_relationship.", "bert.pooler."),
            "bert.pooler and cls.seq_relationship not in the model, so initialised at random",
        ),
        (("cls.",), "cls.predictions and cls.seq_relationship not in the model, so initialised at random"),
    ],
)
def test_missing_heads_start_at_random_and_are_named(
    config: Pretrain, published: Path, gone: tuple[str, ...], said: str
) -> None:
    change(published, without(*gone))
    lines: list[str] = []
    initial = read(config, lines.append)
    assert lines[0].endswith(f" word embeddings; {said}")
    torch.manual_seed(5)
    found = loaded(initial, config).state_dict()
    torch.manual_seed(6)
    again = loaded(initial, config).state_dict()
    assert {name for name in found if not torch.equal(found[name], again[name])} == {
        name
        for name in found
        if to_published({name: found[name]}, BERT).popitem()[0].startswith(gone)
        and name.endswith("weight")
        and "norm" not in name
    }


def test_heads_of_other_tasks_are_left_out_and_named(config: Pretrain, published: Path) -> None:
    change(
        published,
        lambda tensors: (
            without(*HEADS)(tensors) | {"classifier.weight": torch.ones(3, 32), "classifier.bias": torch.ones(3)}
        ),
    )
    lines: list[str] = []
    read(config, lines.append)
    assert lines[0].endswith("initialised at random; classifier.bias, classifier.weight left out")
    read(config, lines.append, used=(POOLER,))
    assert "; bert.pooler not in the model, so initialised at random; " in lines[1], (
        "heads that are not used are not spoken of"
    )


def test_half_precision_is_taken_as_float32(config: Pretrain, published: Path) -> None:
    change(published, lambda tensors: {name: tensor.half() for name, tensor in tensors.items()})
    assert {tensor.dtype for tensor in loaded(read(config, print), config).state_dict().values()} == {torch.float32}


def test_tensors_that_are_missing_or_too_many_are_named(config: Pretrain, published: Path) -> None:
    whole = load_file(published / "model.safetensors")
    heads = "only whole heads may be missing (bert.pooler, cls.predictions, cls.seq_relationship)"
    change(published, without("bert.encoder.layer.1.output.dense.weight"))
    assert refusal(config) == f"init MODEL: tensor bert.encoder.layer.1.output.dense.weight is missing: {heads}"
    change(published, lambda _: without("cls.predictions.transform.dense.bias", "cls.predictions.bias")(whole))
    assert (
        refusal(config)
        == f"init MODEL: tensors cls.predictions.bias, cls.predictions.transform.dense.bias are missing: {heads}"
    )
    change(published, lambda _: without("bert.encoder.layer.1.")(whole))
    assert (
        "tensors bert.encoder.layer.1.attention.self.query.weight, " in (message := refusal(config))
        and f" and 12 more are missing: {heads}" in message
    )
    change(published, lambda _: whole | {"generator.bias": torch.ones(1)})
    assert (
        refusal(config)
        == "init MODEL: tensor generator.bias is unexpected: a BERT with the layers and heads of config.json "
        "has no tensor of that name"
    )


def add_rows(published: Path, surplus: int) -> tuple[dict, dict]:
    """Add rows of ones to the word embeddings; return the tensors before, and those that are longer now."""
    whole = load_file(published / "model.safetensors")
    longer = {
        name: torch.cat([whole[name], torch.ones(surplus, *whole[name].shape[1:])])
        for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")
    }
    save_file(whole | longer, published / "model.safetensors")
    return whole, longer


def test_rows_that_only_fill_up_the_embeddings_are_left_out(
    config: Pretrain, published: Path, tiny_vocabulary: Vocabulary
) -> None:
    size = tiny_vocabulary.size
    rows = -(-size // 64) * 64
    assert rows > size
    whole, longer = add_rows(published, rows - size)
    lines: list[str] = []
    initial = read(config, lines.append)
    assert lines == [
        f"init: weights of {published}, {size} word embeddings; "
        f"{rows - size} padding rows of the word embeddings left out"
    ]
    assert torch.equal(loaded(initial, config).words, whole["bert.embeddings.word_embeddings.weight"])
    kept = read(config, lines.append, keeps_padding=True)
    assert lines[1] == (
        f"init: weights of {published}, {rows} word embeddings; "
        f"{rows - size} padding rows of the word embeddings kept as [unused] entries"
    )
    assert kept.vocabulary.tokens == (*tiny_vocabulary.tokens, *(f"[unused{id}]" for id in range(size, rows)))
    assert torch.equal(loaded(kept, config).words, longer["bert.embeddings.word_embeddings.weight"])


def test_surplus_rows_are_padding_beside_the_own_vocabulary_alone(
    config: Pretrain, published: Path, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    size = tiny_vocabulary.size
    rows = size + 35 + size % 2  # odd, so no multiple of 8 or 100
    whole, longer = add_rows(published, rows - size)
    assert torch.equal(loaded(read(config, print), config).words, whole["bert.embeddings.word_embeddings.weight"])
    kept = read(config, print, keeps_padding=True)
    assert kept.vocabulary.size == rows
    assert torch.equal(loaded(kept, config).words, longer["bert.embeddings.word_embeddings.weight"])
    trained, _ = load_published(saved := open_saved(str(published)), saved.vocabulary)
    assert trained.vocabulary_size == size
    assert torch.equal(trained.module.words, whole["bert.embeddings.word_embeddings.weight"])
    save_vocabulary(tiny_vocabulary, tmp_path, 32)
    named = replace(config, vocabulary=VocabularySettings(path=str(tmp_path)))
    assert f"the weights have {rows} word embeddings, but the vocabulary in {tmp_path} has {size} " in refusal(named)


def test_a_copy_of_an_earlier_version_keeps_its_vocabulary(config: Pretrain, tiny_vocabulary: Vocabulary) -> None:
    manifest = Path(read(config, print).folder) / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"padding": 6}))
    lines: list[str] = []
    assert read(config, lines.append, keeps_padding=True).vocabulary == tiny_vocabulary
    assert lines[0].endswith("; 6 padding rows of the word embeddings left out")


def test_rows_are_padding_only_up_to_a_round_number() -> None:
    assert [padding_rows(rows, 30_522) for rows in (30_522, 30_528, 30_592, 30_720, 30_523, 30_521)] == [
        0,
        6,
        70,
        0,
        0,
        0,
    ]


def test_weights_that_cannot_be_used_are_refused(config: Pretrain, published: Path) -> None:
    whole = load_file(published / "model.safetensors")
    change(published, lambda _: whole | {"bert.pooler.dense.bias": torch.full((32,), float("nan"))})
    assert (
        refusal(config) == "init MODEL: tensor bert.pooler.dense.bias is not finite: NaN or infinity among the weights"
    )
    change(published, lambda _: without("bert.embeddings.word_embeddings.weight")(whole))
    assert (
        refusal(config)
        == "init MODEL: tensor bert.embeddings.word_embeddings.weight is missing: without word embeddings "
        "there is no BERT to start from"
    )
    change(published, lambda _: whole | {"bert.pooler.dense.bias": torch.zeros(31)})
    assert (
        refusal(config)
        == "init MODEL: tensor bert.pooler.dense.bias has shape [31], but the model's settings give [32]"
    )


@pytest.mark.parametrize(("value", "shown"), [(None, "None"), ("128", "'128'"), (True, "True")])
def test_a_size_that_is_no_number_is_refused(config: Pretrain, published: Path, value: object, shown: str) -> None:
    about = json.loads((published / "config.json").read_text())
    (published / "config.json").write_text(json.dumps(about | {"hidden_size": value}))
    assert refusal(config) == f"init MODEL: config.json: hidden_size is {shown}, which is not a number"


@pytest.mark.parametrize("architecture", ["xlnet", "gpt2"])
def test_another_architecture_is_refused(config: Pretrain, published: Path, architecture: str) -> None:
    (published / "config.json").write_text(json.dumps({"model_type": architecture}))
    message = (
        f"init MODEL: config.json: model_type is '{architecture}', but only 'bert', 'roberta', 'electra', "
        "'distilbert', 'albert', 'xlm-roberta', 'modernbert', 'deberta', 'deberta-v2', 'longformer', 'bigbird' can be "
        "loaded"
    )
    assert refusal(config) == message


def test_a_vocabulary_that_does_not_fit_is_refused_with_both_sizes(
    config: Pretrain, published: Path, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    save_vocabulary(extend_vocabulary(tiny_vocabulary, ["kakaka", "lololo"]), tmp_path / "other", 32)
    other = replace(config, vocabulary=VocabularySettings(path=str(tmp_path / "other")))
    size = tiny_vocabulary.size
    assert refusal(other) == (
        f"init MODEL: the weights have {size} word embeddings, but the vocabulary in {tmp_path}/other has {size + 2} "
        "entries: "
        "set vocabulary.path to the vocabulary that the model was trained with"
    )
    for name in ("tokenizer.json", "vocab.txt"):
        (published / name).unlink()
    assert refusal(config, ConfigError) == (
        "vocabulary.path (MODEL) has no vocab.txt, tokenizer.json, vocab.json, spiece.model or spm.model: give a "
        "folder with one, or the file"
    )
    (published / "vocab.txt").write_text("one\ntwo\n")
    (published / "tokenizer_config.json").unlink()
    refusal(config, DataError)


def test_sizes_are_the_checkpoints_and_dropout_is_the_users(config: Pretrain) -> None:
    initial = read(config, print)
    assert agreed_model(Model(), initial, "MODEL") == initial.model
    assert agreed_model(Model(width=32, attention_dropout=0.0), initial, "MODEL") == replace(
        initial.model, attention_dropout=0.0
    )
    trained = replace(initial, model=replace(initial.model, hidden_dropout=0.2))
    assert agreed_model(Model(), trained, "MODEL").hidden_dropout == 0.2
    with pytest.raises(
        ConfigError, match=r"^model.positions \(RotaryPositions\(theta=10000.0, local_theta=None\)\) diff"
    ):
        agreed_model(Model(positions=RotaryPositions()), initial, "MODEL")
    with pytest.raises(ConfigError) as refused:
        agreed_model(Model(layers=12), initial, "MODEL")
    assert (
        str(refused.value)
        == "model.layers (12) differs from num_hidden_layers (2) in the config.json of init MODEL: leave model.layers "
        "out (preset continue sets no model settings), or choose another init"
    )


def test_rows_of_new_words_are_the_means_of_their_pieces() -> None:
    tokens = ("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a", "##b")
    vocabulary = Vocabulary(tokens=tokens, lowercase=True)
    longer = extend_vocabulary(vocabulary, ["aba", "aab"])
    words, bias = torch.arange(18.0).view(9, 2), torch.arange(9.0)
    state = {"encoder.embeddings.words.weight": words, "masked_token_head.bias": bias, "rest": torch.ones(2)}
    found = extended_state(state, vocabulary, longer)
    assert found["masked_token_head.bias"].tolist() == [0, 7, 2, 3, 4, 5, 6, 7, 8, 7]
    assert (
        found["encoder.embeddings.words.weight"][1].tolist()
        == found["encoder.embeddings.words.weight"][9].tolist()
        == [14, 15]
    )
    assert torch.equal(found["encoder.embeddings.words.weight"][2:9], words[2:]) and torch.equal(
        found["rest"], torch.ones(2)
    )
    assert words[1].tolist() == [2, 3] and extended_state(state, vocabulary, vocabulary).keys() == state.keys()


def test_word_embeddings_are_placed_and_those_without_stay(
    training, tiny_config: Pretrain, tiny_vocabulary: Vocabulary
) -> None:
    module = training.module(tiny_config)
    table = module.encoder.embeddings.words.weight
    before = table.detach().clone()
    words = torch.zeros(tiny_vocabulary.size, tiny_config.model.width)
    words[7:9] = torch.randn(2, tiny_config.model.width)
    set_word_embeddings(module, words)
    assert torch.equal(table[7:9], words[7:9]) and table.requires_grad
    stay = [entry for entry in range(tiny_vocabulary.size) if entry not in (7, 8)]
    assert torch.equal(table[stay], before[stay])


HUGE = [
    (
        "num_hidden_layers",
        1_000_000_000,
        r"config.json: num_hidden_layers is 1000000000, but the weights have only \d+ tensors: use .*",
    ),
    (
        "hidden_size",
        2_000_000_000,
        r"config.json: a model of these sizes has at least [\d,]+ weights, but the files have [\d,]+: use .*",
    ),
    (
        "max_position_embeddings",
        10**30,
        r"config.json: a model of these sizes has at least [\d,]+ weights, but the files have [\d,]+: use .*",
    ),
    (
        "intermediate_size",
        10**18,
        r"config.json: a model of these sizes has at least [\d,]+ weights, but the files have [\d,]+: use .*",
    ),
    ("num_hidden_layers", 2.5, "config.json: num_hidden_layers is 2.5, which is not a whole number"),
    ("layer_norm_eps", float("inf"), "config.json: layer_norm_eps is inf, which is not a finite number"),
    ("architectures", [7], "config.json: architectures is 7, but model_type 'bert' needs a class of BERT"),
]


@pytest.mark.timeout(60)  # and gigabytes of memory, were such a model made
@pytest.mark.parametrize(("field", "value", "words"), HUGE)
def test_sizes_that_the_files_do_not_hold_are_refused_unseen(
    config: Pretrain, published: Path, field: str, value: object, words: str
) -> None:
    said = json.loads((published / "config.json").read_text())
    (published / "config.json").write_text(json.dumps(said | {field: value}))
    assert re.fullmatch(f"init MODEL: {words}", refusal(config))


def test_a_config_that_is_nested_too_deeply_or_too_long_is_refused(config: Pretrain, published: Path) -> None:
    (published / "config.json").write_text("[" * 100_000 + "]" * 100_000)
    assert refusal(config) == "init MODEL: config.json cannot be read: it is nested too deeply"
    with open(published / "config.json", "wb") as sparse:
        sparse.truncate(1 << 40)
    assert (
        refusal(config)
        == "init MODEL: config.json cannot be read: [Errno 27] it has more than 16,777,216 bytes: 'MODEL/config.json'"
    )


@pytest.mark.timeout(60)  # a pipe without a writer, or a device, would be read for ever
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"]
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_refused_unread(config: Pretrain, published: Path, name: str, kind: str) -> None:
    if name == "vocab.txt":
        (published / "tokenizer.json").unlink()
    if name == "tokenizer_config.json":
        (published / "tokenizer.json").unlink()
    (published / name).unlink()
    os.mkfifo(published / name) if kind == "pipe" else (published / name).symlink_to("/dev/zero")
    with pytest.raises(PipelineError) as refused:
        read(config, print)
    assert f"{published}/{name} is not a regular file" in str(
        refused.value
    ) or "it is a pipe, a socket or a device, and a regular file is needed" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_header_that_does_not_fit_is_refused_before_the_weights_are_read(config: Pretrain, published: Path) -> None:
    with open(published / "model.safetensors", "r+b") as sparse:
        sparse.truncate(1 << 42)
    assert refusal(config).startswith("init MODEL: model.safetensors cannot be read: ")


def test_a_folder_that_lower_cases_first_is_warned_of(config: Pretrain, published: Path, tmp_path: Path) -> None:
    warning = f"warning: init ({published}) has do_lower_case true before a cased vocabulary, which training does not"
    (published / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer", "path": ""}]')
    (published / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    said: list[str] = []
    read(config, said.append)
    assert len(said) == 1  # the vocabulary is uncased
    for name, old, new in (
        ("tokenizer.json", '"lowercase": true', '"lowercase": false'),
        ("tokenizer.json", '"a":', '"A":'),
        ("vocab.txt", "\na\n", "\nA\n"),
        ("tokenizer_config.json", '"do_lower_case": true', '"do_lower_case": false'),
    ):
        text = (published / name).read_text()
        assert old in text
        (published / name).write_text(text.replace(old, new))
    read(replace(config, output=str(tmp_path / "cased")), said.append)
    assert [line.startswith(warning) for line in said] == [False, False, True]
