"""Turn the user's own files into a task: infer its kind and read its items."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline.config.finetune import Finetune
from pipeline.config.similarity import KIND_OF_LOSS, LOSSES
from pipeline.errors import BadRow, ConfigError, DataError, listed, shown
from pipeline.tables.bad_rows import OPTION, BadRows
from pipeline.tables.content import bare_name
from pipeline.tables.readers import rows_in
from pipeline.tables.recognise import ExampleKind, kind_of
from pipeline.tables.roles import CONTEXT, LAYOUTS, QUESTION
from pipeline.tables.squad import Question, read_questions
from pipeline.tables.word_columns import WITH_LISTS
from pipeline.tasks import tags
from pipeline.tasks.choice_tables import ChoiceColumns, choice_task, read_choices
from pipeline.tasks.files import Columns, own_task, read_file, require_labels, stem
from pipeline.tasks.matches import (
    MatchColumns,
    match_columns,
    matching_task,
    read_matches,
    require_negatives,
    require_scored_negatives,
    with_negatives,
)
from pipeline.tasks.metrics.entities import as_iob, begun_inside, respelled
from pipeline.tasks.question_tables import AskedColumns, has_questions, read_question_table
from pipeline.tasks.questions import misplaced_answers, trainable_questions
from pipeline.tasks.scored_pairs import (
    pair_columns,
    read_classes,
)
from pipeline.tasks.tagging import Sentence, Utterance, read_sentences, read_tagged
from pipeline.tasks.task import Task, number_in

Lost = dict[str, tuple[str, ...]]
"""Split -> lines that describe what was left out of the split."""


def read_own(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], Lost]:
    """Return the task that a training file defines, the files' items by split, and what was left out.

    `dev` is None if there is no development file. `with_pair_columns` gives the columns. Raises DataError for a
    file that cannot be read, and for a format that does not fit the setting `kind`. Unless bad rows are skipped,
    DataError is also raised for labels of `dev` that `train` lacks.
    """
    config, form = with_pair_columns(config), kind_of(train)
    config = replace(config, kind="choices") if config.choices else config
    forms = {"squad": "spans", "conll": "tags"}
    if config.kind not in ("auto", forms.get(form, config.kind)):
        raise DataError(
            f"{train} has the format {form}, which is of kind {forms[form]}, but kind is {config.kind}: leave --kind "
            "out"
        )
    _require_named_words(config, train, form)
    if (
        form == "squad"
        or form == "table"
        and (config.kind == "spans" or config.kind == "auto" and _are_questions(config, train))
    ):
        return _question_task(config, train, dev)
    if (
        form == "conll"
        or config.kind == "tags"
        or config.kind == "auto"
        and _has_lists(train, (config.text, _first_label(config)), bad_rows(config))
    ):
        return _tagging_task(config, train, dev)
    if config.kind == "choices":
        return _choice_task(config, train, dev)
    if config.kind == "similarity" and (kind := KIND_OF_LOSS[config.similarity.loss]) in OWN_TASKS:
        return OWN_TASKS[kind](config, train, dev)
    columns, bad = columns_of(config), bad_rows(config)
    forced = None if config.kind == "auto" else config.kind
    texts = read_file(train, columns, forced, bad)
    task = own_task(train, texts, forced, columns.labels, skip=bad.skip)
    items = {"train": require_labels(task, train, texts, bad)}
    lost = {"train": bad.words()}
    if dev is not None:
        bad = bad_rows(config)
        items["dev"] = require_labels(task, dev, read_file(dev, columns, task.kind, bad), bad)
        lost["dev"] = bad.words()
    return task, items, lost


def bad_rows(config: Finetune) -> BadRows:
    """Return a new bad-row policy for one file."""
    return BadRows(skip=config.on_bad_rows == "skip", remedy=OPTION)


def _has_lists(location: str, columns: Sequence[str], bad: BadRows) -> bool:
    """Return whether all of these columns hold lists in a file's first usable row, as columns of words and tags do."""
    if not bare_name(location).endswith(WITH_LISTS):
        return False
    _, values = next(rows_in(location, columns, bad), (1, ()))
    return bool(values) and all(isinstance(value, list) for value in values)


def columns_of(config: Finetune) -> Columns:
    """Return the columns named by the settings."""
    label = None if len(config.label) > 1 else _first_label(config)
    return Columns(first=config.text, second=config.pair, label=label, labels=() if label else config.label)


def with_pair_columns(config: Finetune) -> Finetune:
    """Return the settings; for kind similarity or ranking, with the columns that are found in the training file."""
    if config.kind not in ("similarity", "ranking") or config.train is None:
        return config
    named = None if config.text == Finetune.text else config.text
    kind = "ranking" if config.kind == "ranking" else KIND_OF_LOSS[config.similarity.loss]
    if kind == "matching":
        found = match_columns(config.train, named, config.pair, config.negative)
        return replace(config, text=found.first, pair=found.second, negative=found.negatives)
    columns = pair_columns(config.train, named, config.pair, config.label, LAYOUTS[kind])
    return replace(config, text=columns.first, pair=columns.second, label=(str(columns.label),))


def _first_label(config: Finetune) -> str:
    """Return the column of the label or tags; default: label."""
    return config.label[0] if config.label else "label"


def _are_questions(config: Finetune, location: str) -> bool:
    """Return whether a table holds questions.

    If the settings name no column, the table must have the usual columns of questions. Otherwise exactly one label
    column must be set, and must hold answers with positions.
    """
    named = (config.text, config.pair, config.label) != ("text", None, ())
    return (not named or len(config.label) == 1) and has_questions(location, config.label[0] if named else None)


def read_file_questions(config: Finetune, location: str, bad: BadRows) -> list[Question]:
    """Return the questions of a file, which is SQuAD's JSON or a table. Raises DataError for other formats."""
    form = kind_of(location)
    if form == "squad":
        return read_questions(location)
    if form != "table":
        raise DataError(f"{location} has the format {form}: questions are read from SQuAD's JSON and from tables")
    context = CONTEXT if config.text == "text" else config.text
    return read_question_table(
        location,
        AskedColumns(
            context=context, question=config.pair or QUESTION, answers=config.label[0] if config.label else None
        ),
        bad,
    )


def _question_task(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], Lost]:
    """Return a question-answering task, its items, and what was left out.

    If some training questions are impossible (SQuAD 2.0), answers may be empty.
    """
    bad, bad_of_dev = bad_rows(config), bad_rows(config)
    questions = read_file_questions(config, train, bad)
    kept, unlearnable = trainable_questions(questions, train)
    task = Task(
        name=stem(train),
        kind="spans",
        metrics=("f1", "exact"),
        maximum_length=384,
        unanswerable=any(question.impossible for question in questions),
    )
    of_dev = read_file_questions(config, dev, bad_of_dev) if dev else []
    items = {"train": kept} | ({"dev": of_dev} if dev else {})
    lost = {"train": (*bad.words(), *unlearnable), "dev": (*bad_of_dev.words(), *misplaced_answers(of_dev))}
    return task, items, lost


def choice_columns(config: Finetune) -> ChoiceColumns:
    """Return the columns of multiple choice that the settings name."""
    return ChoiceColumns(
        first=config.text,
        start=config.pair,
        choices=config.choices or ChoiceColumns.choices,
        label=_first_label(config),
    )


def _choice_task(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], Lost]:
    """Return a task of multiple choice, its items from tables, and what was left out."""
    items, lost = {}, {}
    for split, location in (("train", train), ("dev", dev)):
        if location is not None:
            bad = bad_rows(config)
            items[split] = read_choices(location, choice_columns(config), bad)
            lost[split] = bad.words()
    return choice_task(stem(train)), items, lost


def _matching_task(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], Lost]:
    """Return a task of matching texts, its items from tables, and what was left out."""
    columns = MatchColumns(first=config.text, second=str(config.pair), negatives=config.negative)
    loss = config.similarity.loss
    if LOSSES[loss].needs_negatives:
        require_negatives(train, columns, loss)
    items, lost = {}, {}
    for split, location in (("train", train), ("dev", dev)):
        if location is not None:
            bad = bad_rows(config)
            every = read_matches(location, columns, bad, loss=loss)
            items[split], left_out = with_negatives(every, config.similarity.negatives)
            lost[split] = (*bad.words(), *left_out)
    task = matching_task(stem(train), items["train"])
    if dev is not None:
        require_scored_negatives(task, dev, items["dev"], f"add negative texts to {dev}")
    return task, items, lost


def _relation_task(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], Lost]:
    """Return a task of pairs with a class, its items from tables, and what was left out."""
    bad, bad_of_dev, columns = bad_rows(config), bad_rows(config), columns_of(config)
    texts = read_classes(train, columns, bad)
    if score := next(filter(_is_fraction, texts["label"].to_pylist()), None):
        raise ConfigError(
            f"similarity.loss (softmax) is for pairs of texts with a class, but the labels of {train} are numbers such "
            f"as {score}: set similarity.loss cosent, or name the column of the class with --label"
        )
    task = replace(own_task(train, texts, "classification", skip=bad.skip), kind="relations", metrics=("accuracy",))
    items = {"train": require_labels(task, train, texts, bad)}
    if dev is not None:
        items["dev"] = require_labels(task, dev, read_classes(dev, columns, bad_of_dev), bad_of_dev)
    return task, items, {"train": bad.words(), "dev": bad_of_dev.words()}


def _is_fraction(label: str) -> bool:
    """Return whether a label is a number that is not whole."""
    return (value := number_in(label)) is not None and value != int(value)


OWN_TASKS = {"matching": _matching_task, "relations": _relation_task}
"""Kind of task, chosen by similarity.loss -> function that reads the user's own files."""


def _tagging_task(config: Finetune, train: str, dev: str | None) -> tuple[Task, dict[str, Any], Lost]:
    """Return a tagging task, its items from CoNLL columns or a table, and what was left out."""
    bad, bad_of_dev = bad_rows(config), bad_rows(config)
    items = {"train": sentences(config, train, bad)}
    task = tags.own_task(stem(train), train, items["train"])
    if dev:
        items["dev"] = with_known_tags(task, dev, sentences(config, dev, bad_of_dev), bad_of_dev)
    return task, items, {"train": bad.words(), "dev": bad_of_dev.words()}


def with_known_tags(task: Task, location: str, items: Sequence[Sentence], bad: BadRows) -> list[Sentence]:
    """Return the sentences that have only tags known to the task, and a known intent if they have one.

    A tag gets the task's spelling, B_PER or B-PER: the spelling of a file depends on all tags in it (`read_sentences`).
    So does a tag of IOB2 whose type the task has only in BIOES or BILOU: B-PER is S-PER if the task has no B-PER.

    Raises DataError at the first sentence with an unknown tag or intent, unless `bad` skips such sentences. Also raises
    DataError if no sentence is left.
    """
    known, kept = {*task.labels, *begun_inside(task.labels)}, []
    spelling = {respelled(label): label for label in task.labels}
    if tags.chunks(task):
        spelling = {as_iob(label): label for label in task.labels} | spelling
    for number, item in enumerate(items, 1):
        where = f"{location}, sentence {number}"
        if not known.issuperset(item.tags):
            tags_of_task = (tag if tag in known else spelling.get(respelled(tag), tag) for tag in item.tags)
            item = replace(item, tags=tuple(tags_of_task))
        if unknown := [tag for tag in item.tags if tag not in known]:
            bad.take(
                BadRow(
                    f"{where}: tag {shown(unknown[0])} is not among the {len(task.labels)} tags of "
                    f"{task.name} ({listed(task.labels)}); correct the file, or train on a file with that tag",
                    "unknown-tag",
                )
            )
        elif isinstance(item, Utterance) and item.intent not in task.intents:
            bad.take(
                BadRow(
                    f"{where}: intent {shown(item.intent)} is not among the {len(task.intents)} intents of {task.name} "
                    f"({listed(task.intents)}); correct the file, or train on a file with that intent",
                    "unknown-intent",
                )
            )
        else:
            kept.append(item)
    bad.require_some(location, len(kept))
    return kept


def sentences(config: Finetune, location: str, bad: BadRows) -> list[Sentence]:
    """Return a file's tagged sentences."""
    form = kind_of(location)
    _require_named_words(config, location, form)
    if form != "conll":
        return read_tagged(location, config.text, _first_label(config), bad, config.intent)
    if config.intent is not None:
        raise DataError(
            f"{location} has the format conll, which has no column of intents, but intent is {config.intent}: give a "
            "table with columns of words, tags and intents"
        )
    column = _first_label(config)
    if column != "label" and not column.lstrip("-").isdigit():
        raise DataError(
            f"label ({column}) must be a number, because the columns of {location} have no names: "
            "pass --label 1 for the second column, or --label -1 for the last one"
        )
    return read_sentences(location, None if column == "label" else int(column), bad, config.words)


def _require_named_words(config: Finetune, location: str, form: ExampleKind) -> None:
    """Raise ConfigError if words, the number of a column, is set for a file whose columns have names."""
    if config.words is not None and form != "conll":
        raise ConfigError(
            f"words ({config.words}) is the number of a column in CoNLL's files, but {location} has the format {form}: "
            "name the column of the words with --text"
        )
