import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.data import (
    FullSentences,
    Preparation,
    Sampling,
    TokenMasking,
    VocabularySettings,
    WholeWordMasking,
)
from pipeline.config.jobs import Pretrain, with_usual_slots
from pipeline.config.model import Model
from pipeline.config.model_parts import RotaryPositions
from pipeline.config.objective import Replaced
from pipeline.config.phases import TwoPhases
from pipeline.config.placement import Placement
from pipeline.config.training import (
    AdamW,
    Batch,
    Checkpoints,
    ConstantRate,
    Evaluation,
    Lamb,
    LinearDecay,
    Muon,
    Schedule,
    StableAdamW,
    Tracking,
    WarmupStableDecay,
)
from pipeline.corpus.prepared import Corpus
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.files.storage import write_json
from pipeline.presets.table import PRESETS
from pipeline.saved.naming import ADDED, default_name, identifying_settings, with_name
from pipeline.saved.run import is_finished, read_run, read_summary, run_folder, settings_of, write_run
from pipeline.text.vocabulary import Vocabulary
from pipeline.train.run_identity import identity, refuse_differences, refuse_other_versions, rollback_step

CONFIG = Pretrain(name="mine", steps=100, batch=Batch(rows_per_step=64, rows_per_slot=16))
GROWING = replace(CONFIG, schedule=ConstantRate())

SHAPING = [
    {"steps": 101},
    {"seed": 1},
    {"corpus": ("a",)},
    {"init": "a"},
    {"init": "a", "vocabulary": VocabularySettings(extend=2)},
    {"prepare": Preparation(heldout_share=0.02)},
    {"vocabulary": VocabularySettings(size=8_192)},
    {"sampling": Sampling(maximum_length=64)},
    {"sampling": Sampling(masking=WholeWordMasking())},
    {"model": Model(hidden_dropout=0.0)},
    {"batch": Batch(rows_per_step=64, rows_per_slot=32)},
    {"optimizer": AdamW(learning_rate=2e-4)},
    {"schedule": LinearDecay(warmup_share=0.02)},
    {"schedule": ConstantRate()},
    {"schedule": WarmupStableDecay(warmup_steps=9)},
    {"optimizer": Lamb(learning_rate=1e-4)},
    {"batch": Batch(rows_per_step=64, rows_per_slot=16, warmup_steps=9, warmup_rows=32)},
    {"word_embeddings": "cooccurrence"},
    {"optimizer": AdamW(word_embeddings_rate=0.5)},
    {"phases": TwoPhases()},
    {"phases": TwoPhases(share=0.2)},
    {"phases": TwoPhases(masking_share=0.15)},
    {"model": Model(block="pre-norm")},
    {"model": Model(positions=RotaryPositions())},
    {"model": Model(positions=RotaryPositions()), "phases": TwoPhases(theta=160_000.0)},
    {"optimizer": StableAdamW()},
    {"optimizer": Muon()},
    {"sampling": Sampling(copies=10)},
    {"sampling": Sampling(pairs=FullSentences()), "model": Model(family="electra")},
    {"sampling": Sampling(pairs=FullSentences()), "model": Model(family="electra"), "objective": Replaced()},
    {"sampling": Sampling(pairs=FullSentences()), "model": Model(family="electra"), "objective": Replaced(weight=10.0)},
]
EARLIER = {
    "bert-tiny": "bert-tiny-d3b8cbca",
    "bert-base": "bert-base-3381f74f",
    "roberta-tiny": "roberta-tiny-538b67b9",
    "electra-tiny": "electra-tiny-9c5e3ce3",
}
"""Names of runs of presets before sampling.copies, phases.masking_share and the objective were part of names."""
BESIDE = [
    {"workers": 4},
    {"name": "another"},
    {"output": "elsewhere"},
    {"placement": Placement(device="cpu", precision="float32", compile="off", threads=3, restarts=0, address="auto")},
    {"tracking": Tracking(uri="http://localhost:5000", every=1)},
    {"checkpoint": Checkpoints(every=7, keep=1)},
    {"evaluation": Evaluation(every=7, rows=9)},
]


@pytest.fixture
def corpus() -> Corpus:
    return Corpus(folder="nowhere", fingerprint="aaaa", train=(), heldout=(), counts={}, dropped={}, sources={})


def test_runs_that_earlier_versions_updated_by_other_rules_are_new_runs() -> None:
    deberta = PRESETS["deberta-tiny"]
    changed = [
        replace(CONFIG, optimizer=Lamb(weight_decay=0)),
        replace(deberta, optimizer=replace(deberta.optimizer, layer_decay=0.9)),
    ]
    unchanged = [
        replace(CONFIG, optimizer=Lamb()),
        replace(CONFIG, optimizer=AdamW(weight_decay=0, layer_decay=0.9)),
        deberta,
    ]
    marked = ["optimizer.later_rules" in identifying_settings(config) for config in (*changed, *unchanged)]
    assert marked == [True, True, False, False, False]


def test_a_default_name_is_the_preset_and_a_digest() -> None:
    name = default_name("bert-tiny", CONFIG)
    assert re.fullmatch(r"bert-tiny-[0-9a-f]{8}", name)
    assert default_name("bert-mini", CONFIG) == name.replace("tiny", "mini")
    assert (
        default_name("bert-tiny", Pretrain(name=None, steps=100, batch=Batch(rows_per_step=64, rows_per_slot=16)))
        == name
    )


def test_what_shapes_the_run_changes_its_name() -> None:
    names = [default_name("bert-tiny", CONFIG)] + [
        default_name("bert-tiny", replace(CONFIG, **change)) for change in SHAPING
    ]
    assert len(set(names)) == len(names)


def test_settings_that_earlier_runs_did_not_record_leave_their_names_and_identities(
    corpus: Corpus, tiny_vocabulary: Vocabulary
) -> None:
    before = {name: with_usual_slots(PRESETS[name]) for name in EARLIER}
    names = {name: default_name(name, settings) for name, settings in before.items()}
    assert names == EARLIER
    for settings in before.values():
        recorded = identity(settings, corpus, tiny_vocabulary)
        assert not [key for key in recorded if key.startswith("objective") or key in ADDED]
        steps = {"steps": settings.steps}
        known = settings_of({"identity": recorded} | steps)
        assert (known.objective, known.sampling, known.phases) == (
            settings.objective,
            settings.sampling,
            settings.phases,
        )


def test_another_objective_is_refused(corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    before, now = (replace(PRESETS["electra-tiny"], objective=Replaced(weight=weight)) for weight in (50.0, 10.0))
    with pytest.raises(ConfigError, match="objective.weight was None and is now 10.0"):
        refuse_differences(now, identity(before, corpus, tiny_vocabulary), identity(now, corpus, tiny_vocabulary))


@pytest.mark.parametrize("change", BESIDE, ids=lambda change: next(iter(change)))
def test_where_and_how_it_runs_does_not(change: dict, corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    changed = replace(CONFIG, **change)
    assert default_name("bert-tiny", changed) == default_name("bert-tiny", CONFIG)
    assert identity(changed, corpus, tiny_vocabulary) == identity(CONFIG, corpus, tiny_vocabulary)


@pytest.mark.parametrize("schedule", [ConstantRate(), WarmupStableDecay(warmup_steps=9)])
def test_steps_may_grow_under_a_rate_that_does_not_end_with_them(
    schedule: Schedule, corpus: Corpus, tiny_vocabulary: Vocabulary
) -> None:
    growing = replace(CONFIG, schedule=schedule)
    longer = replace(growing, steps=500)
    assert default_name("bert-tiny", longer) == default_name("bert-tiny", growing)
    refuse_differences(longer, identity(growing, corpus, tiny_vocabulary), identity(longer, corpus, tiny_vocabulary))


def test_a_run_that_has_begun_to_decay_grows_from_there() -> None:
    config = replace(CONFIG, schedule=WarmupStableDecay(warmup_steps=9, decay_share=0.25), steps=200)
    recorded = {"steps": 100}
    assert [rollback_step(config, recorded, done) for done in (0, 74, 75, 80, 100)] == [None, None, 75, 75, 75]
    assert rollback_step(replace(config, steps=100), recorded, 100) is None
    assert rollback_step(replace(config, schedule=ConstantRate()), recorded, 100) is None
    assert rollback_step(replace(config, schedule=WarmupStableDecay(decay_share=0.0)), recorded, 100) is None
    with pytest.raises(ConfigError) as refused:
        rollback_step(replace(config, steps=99), recorded, 50)
    assert str(refused.value) == (
        "steps (99) must be at least 100, as requested before for run mine, whose learning rate may have begun to "
        "decay already: set more steps, or choose another --name"
    )
    decaying = replace(config, schedule=WarmupStableDecay(warmup_steps=0, decay_share=1.0))
    assert rollback_step(decaying, recorded, 0) is None
    with pytest.raises(ConfigError) as refused:
        rollback_step(decaying, recorded, 50)
    assert str(refused.value) == (
        "steps (200) cannot be more than 100 in run mine: its learning rate decays from the first step on, so it "
        "has no step before its decay to continue from: choose another --name"
    )


def test_a_name_is_filled_in_only_where_none_is_given() -> None:
    assert with_name(CONFIG, "bert-tiny") is CONFIG
    assert with_name(replace(CONFIG, name=None), "bert-tiny") == replace(CONFIG, name=default_name("bert-tiny", CONFIG))


def test_the_same_settings_continue_a_run(corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    wanted = identity(CONFIG, corpus, tiny_vocabulary)
    refuse_differences(CONFIG, dict(wanted), wanted)
    assert (
        wanted["steps"] == 100
        and wanted["corpus.fingerprint"] == "aaaa"
        and wanted["vocabulary.fingerprint"] == tiny_vocabulary.fingerprint
    )
    assert (
        wanted["sampling.masking"] == "TokenMasking"
        and "workers" not in wanted
        and "steps" not in identity(GROWING, corpus, tiny_vocabulary)
    )


def test_a_run_with_sentences_of_an_older_version_is_not_continued(corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    wanted = identity(CONFIG, corpus, tiny_vocabulary)
    older = wanted | {"version.sentences": 1}
    with pytest.raises(ConfigError, match="version.sentences was 1 and is now 2; choose another --name"):
        refuse_differences(CONFIG, older, wanted)
    with pytest.raises(
        DataError,
        match="^/runs/mine was trained with version.sentences 1, but this environment has 2, which may give other rows",
    ):
        refuse_other_versions("/runs/mine", older)
    refuse_other_versions("/runs/mine", wanted)


def test_only_what_was_recorded_is_named_of_an_older_run(corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    with pytest.raises(ConfigError) as refused:
        refuse_differences(
            CONFIG, identity(GROWING, corpus, tiny_vocabulary), identity(CONFIG, corpus, tiny_vocabulary)
        )
    assert "steps was None and is now 100" in str(refused.value)


def test_another_rate_is_refused_with_both_values(corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    other = replace(CONFIG, optimizer=AdamW(learning_rate=2e-4))
    with pytest.raises(ConfigError) as refused:
        refuse_differences(other, identity(CONFIG, corpus, tiny_vocabulary), identity(other, corpus, tiny_vocabulary))
    assert str(refused.value) == (
        "run mine was started with other settings: optimizer.learning_rate was 0.0001 and is now 0.0002; "
        "choose another --name, or use the settings of the run"
    )


def test_more_steps_of_a_decay_are_refused_with_the_way_out(corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    longer = replace(CONFIG, steps=500)
    with pytest.raises(ConfigError) as refused:
        refuse_differences(longer, identity(CONFIG, corpus, tiny_vocabulary), identity(longer, corpus, tiny_vocabulary))
    assert str(refused.value) == (
        "run mine was started with other settings: steps was 100 and is now 500 "
        "(steps may grow only in a run of one phase with schedule:constant-rate or schedule:warmup-stable-decay: "
        "other schedules, and several phases, depend on the number of steps); "
        "choose another --name, or use the settings of the run"
    )


def test_of_many_differences_four_are_named() -> None:
    recorded = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "same": 0}
    with pytest.raises(ConfigError) as refused:
        refuse_differences(CONFIG, recorded, {"a": "x", "b": None, "c": 0, "d": 0, "f": 6, "same": 0})
    assert str(refused.value) == (
        "run mine was started with other settings: a was 1 and is now 'x', b was 2 and is now None, "
        "c was 3 and is now 0, d was 4 and is now 0 "
        "and 2 more; choose another --name, or use the settings of the run"
    )


def test_the_name_of_a_run_holds_that_the_size_of_its_vocabulary_follows_from_the_text() -> None:
    """So the same vocabulary, named by its size, goes on under the run's name; and small ones can be read back."""
    automatic = replace(CONFIG, name=None, vocabulary=VocabularySettings(kind="byte-bpe", size="auto"))
    sizes = [replace(automatic.vocabulary, size=size) for size in ("auto", 8_192, 50_368)]
    assert len({default_name("p", replace(automatic, vocabulary=each)) for each in sizes}) == 3


def test_a_vocabulary_is_recorded_by_its_fingerprint_alone(corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    automatic = replace(CONFIG, vocabulary=VocabularySettings(kind="byte-bpe", size="auto"))
    assert identity(automatic, corpus, tiny_vocabulary) == identity(CONFIG, corpus, tiny_vocabulary)


def test_a_run_that_reached_its_steps_is_finished() -> None:
    assert not is_finished(None, CONFIG)
    assert [is_finished({"steps": steps}, CONFIG) for steps in (99, 100, 101)] == [False, True, True]


def test_what_a_run_records_is_read_back(tmp_path: Path, corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    folder = run_folder(replace(CONFIG, output=f"{tmp_path}/out"))
    assert folder == f"{tmp_path}/out/runs/mine"
    assert run_folder(replace(CONFIG, output="s3://bucket/x")) == "s3://bucket/x/runs/mine"
    assert read_run(folder) is None and read_summary(folder) is None
    rich = replace(CONFIG, sampling=Sampling(masking=TokenMasking(share=0.2)))
    write_run(folder, identity(rich, corpus, tiny_vocabulary), 100, "0a1b", "/corpus")
    assert read_run(folder) == {
        "identity": identity(rich, corpus, tiny_vocabulary),
        "steps": 100,
        "mlflow_run_id": "0a1b",
        "corpus": "/corpus",
    }


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"phases": TwoPhases(share=0.3)},
        {"schedule": ConstantRate(), "steps": 7},
        {"optimizer": Lamb(layer_decay=0.9)},
    ],
)
def test_a_record_gives_its_settings_back(change: dict, corpus: Corpus, tiny_vocabulary: Vocabulary) -> None:
    config = replace(CONFIG, name=None, **change)
    assert settings_of({"identity": identity(config, corpus, tiny_vocabulary), "steps": config.steps}) == config


def test_a_folder_in_the_place_of_a_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(
        CheckpointError,
        match=rf"^{tmp_path}/run.json is a folder, and a file is needed: restore it, or start under another --name$",
    ):
        read_run(str(tmp_path))


def test_a_damaged_summary_says_how_to_get_it_back(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"steps": 1')
    with pytest.raises(
        CheckpointError,
        match=r"summary.json is damaged \(Expecting .*\): delete it, and the command that trained the run "
        r"writes it again$",
    ):
        read_summary(str(tmp_path))


def test_a_file_in_the_place_of_a_run_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    assert read_run(str(tmp_path / "a.txt")) is None and read_summary(str(tmp_path / "a.txt")) is None


def test_a_moved_output_is_found_where_it_is_now(tmp_path: Path) -> None:
    run = tmp_path / "new" / "runs" / "tiny"
    for folder in (run / "export", tmp_path / "new/corpora/0a1b", tmp_path / "new/books", tmp_path / "books"):
        folder.mkdir(parents=True)
    (tmp_path / "new" / "mlflow.db").touch()
    summary = {
        "steps": 1,
        "export": "/old/runs/tiny/export",
        "checkpoint": "/old/runs/tiny/checkpoints/step-00000001",
        "mlflow_uri": "sqlite:////old/mlflow.db",
    }
    write_json(f"{run}/summary.json", summary)
    assert read_summary(str(run)) == summary | {
        "export": f"{run}/export",
        "mlflow_uri": f"sqlite:///{tmp_path}/new/mlflow.db",
    }  # the checkpoint is nowhere
    write_json(f"{run}/summary.json", summary | {"mlflow_uri": f"sqlite:///{tmp_path}/new/mlflow.db?timeout=30"})
    assert (read_summary(str(run)) or {})["mlflow_uri"] == f"sqlite:///{tmp_path}/new/mlflow.db?timeout=30"
    for recorded, now in (
        ("/old/corpora/0a1b", f"{tmp_path}/new/corpora/0a1b"),
        (f"{tmp_path}/books", f"{tmp_path}/books"),
        ("/other/books", "/other/books"),  # not OUTPUT/books
        ("s3://bucket/corpora/0a1b", "s3://bucket/corpora/0a1b"),
    ):
        write_run(str(run), {}, 1, "id", recorded)
        assert read_run(str(run)) == {"identity": {}, "steps": 1, "mlflow_run_id": "id", "corpus": now}
