"""Read files of minimal pairs, and download BLiMP's 67 files of 1,000 pairs (Warstadt et al. 2020) once.

BabyLM's evaluation pipeline has two folders of the same form: `blimp_filtered`, with BLiMP's names and fewer pairs, and
`supplement_filtered`. The lines of the supplement have sentence_good, sentence_bad and few or no other fields.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import requests

from pipeline.errors import ConfigError, DataError
from pipeline.files import storage
from pipeline.files.locations import is_url
from pipeline.reporting import Report

BASE = "https://raw.githubusercontent.com/alexwarstadt/blimp/master/data"
"""URL of the folder with the files, which the benchmark's authors publish under CC-BY 4.0."""
TIMEOUT = (10, 60)
"""Maximum seconds to connect, and between two reads."""
MOST_BYTES = 10_000_000  # maximum size of a file; the largest of BLiMP has 380 kB
PAIRS = 1_000
"""Pairs per paradigm of BLiMP."""
SENTENCES = ("sentence_good", "sentence_bad")
LEAST = 2  # pairs of a paradigm: an interval needs two
PARADIGMS = (
    *("adjunct_island", "anaphor_gender_agreement", "anaphor_number_agreement", "animate_subject_passive"),
    *("animate_subject_trans", "causative", "complex_NP_island", "coordinate_structure_constraint_complex_left_branch"),
    *(
        "coordinate_structure_constraint_object_extraction",
        "determiner_noun_agreement_1",
        "determiner_noun_agreement_2",
    ),
    *("determiner_noun_agreement_irregular_1", "determiner_noun_agreement_irregular_2"),
    *("determiner_noun_agreement_with_adj_2", "determiner_noun_agreement_with_adj_irregular_1"),
    *("determiner_noun_agreement_with_adj_irregular_2", "determiner_noun_agreement_with_adjective_1"),
    *("distractor_agreement_relational_noun", "distractor_agreement_relative_clause", "drop_argument"),
    *("ellipsis_n_bar_1", "ellipsis_n_bar_2", "existential_there_object_raising", "existential_there_quantifiers_1"),
    *("existential_there_quantifiers_2", "existential_there_subject_raising", "expletive_it_object_raising"),
    *("inchoative", "intransitive", "irregular_past_participle_adjectives", "irregular_past_participle_verbs"),
    *("irregular_plural_subject_verb_agreement_1", "irregular_plural_subject_verb_agreement_2"),
    *("left_branch_island_echo_question", "left_branch_island_simple_question", "matrix_question_npi_licensor_present"),
    *("npi_present_1", "npi_present_2", "only_npi_licensor_present", "only_npi_scope", "passive_1", "passive_2"),
    *("principle_A_c_command", "principle_A_case_1", "principle_A_case_2", "principle_A_domain_1"),
    *("principle_A_domain_2", "principle_A_domain_3", "principle_A_reconstruction"),
    *("regular_plural_subject_verb_agreement_1", "regular_plural_subject_verb_agreement_2"),
    *("sentential_negation_npi_licensor_present", "sentential_negation_npi_scope", "sentential_subject_island"),
    *("superlative_quantifiers_1", "superlative_quantifiers_2", "tough_vs_raising_1", "tough_vs_raising_2"),
    *("transitive", "wh_island", "wh_questions_object_gap", "wh_questions_subject_gap"),
    *("wh_questions_subject_gap_long_distance", "wh_vs_that_no_gap", "wh_vs_that_no_gap_long_distance"),
    *("wh_vs_that_with_gap", "wh_vs_that_with_gap_long_distance"),
)
SELECTIONS = {
    "all": range(10),
    "odd": (1, 3, 5, 7, 9),
    "even": (0, 2, 4, 6, 8),
    "fifth": (3, 7),
}
"""Name of a selection -> last digits of its pair numbers. "fifth" has only odd numbers, so that a recipe can be chosen
on "fifth" and reported on "even".
"""


@dataclass(frozen=True, kw_only=True)
class Paradigm:
    """The minimal pairs of one grammatical contrast, ordered by pair number."""

    name: str
    phenomenon: str
    """The group of the paradigm in tables; empty if its file names none."""
    good: tuple[str, ...]
    bad: tuple[str, ...]
    numbers: tuple[int, ...] | None = None
    """Numbers of the pairs; None: the pairs are numbered from 0."""

    @property
    def pair_numbers(self) -> Sequence[int]:
        """The number of each pair."""
        return range(len(self.good)) if self.numbers is None else self.numbers

    @property
    def whole(self) -> bool:
        """Whether the paradigm has all pairs that one of BLiMP has."""
        return set(self.pair_numbers) >= set(range(PAIRS))


def read_blimp(folder: str, report: Report, setting: str = "blimp") -> list[Paradigm]:
    """Read the paradigms of BLiMP, whole or filtered, from a folder or its subfolder `data`; else all .jsonl files.

    `setting` is the name of the setting that holds `folder`. If `folder` is local and does not exist, BLiMP is
    downloaded into it first. Raises DataError for a missing or damaged file or a missing pair, and the errors of
    `download`.
    """
    if not storage.exists(folder) and not is_url(folder):
        download(folder, report, setting=setting)
    names = _paradigm_names(folder)
    if not names and "data" in storage.children(folder):
        folder = storage.join(folder, "data")
        names = _paradigm_names(folder)
    missing = [f"{name}.jsonl" for name in PARADIGMS if name not in names]
    if not names or 0 < len(missing) < len(PARADIGMS):
        raise DataError(
            f"{setting} {folder} lacks {len(missing)} of BLiMP's {len(PARADIGMS)} files, such as {missing[0]}: copy "
            "them into this folder, or name a folder that does not exist yet to download them into"
        )
    if not missing and (others := [f"{name}.jsonl" for name in names if name not in PARADIGMS]):
        report(f"{setting}: {', '.join(others)} left out: not of BLiMP")
    of_blimp = not missing
    paradigms = [
        _read_paradigm(storage.join(folder, f"{name}.jsonl"), name, setting)
        for name in (PARADIGMS if of_blimp else names)
    ]
    # Filtered files lack pairs. Where half of the files have all pairs, one that does not is a damaged copy.
    if of_blimp and 2 * sum(paradigm.whole for paradigm in paradigms) >= len(paradigms):
        for paradigm in paradigms:
            _require_whole(paradigm, storage.join(folder, f"{paradigm.name}.jsonl"), setting)
    return paradigms


def _paradigm_names(folder: str) -> list[str]:
    """Return the names of the .jsonl files in a folder, without the ending."""
    return sorted(name.removesuffix(".jsonl") for name in storage.children(folder) if name.endswith(".jsonl"))


def select(paradigms: Sequence[Paradigm], selection: str) -> list[Paradigm]:
    """Return the paradigms with only the pairs of `selection`, a key of SELECTIONS.

    Raises DataError if fewer than two pairs of a paradigm are left.
    """
    selected = []
    for paradigm in paradigms:
        chosen = [index for index, number in enumerate(paradigm.pair_numbers) if number % 10 in SELECTIONS[selection]]
        if len(chosen) < LEAST:
            raise DataError(
                f"{paradigm.name}.jsonl has {len(chosen)} of its {len(paradigm.good)} pairs in the selection "
                f"{selection}, but an interval needs {LEAST}: add pairs, or move the file to another folder"
            )
        kept = {
            field: tuple(values[index] for index in chosen)
            for field, values in (("good", paradigm.good), ("bad", paradigm.bad), ("numbers", paradigm.pair_numbers))
        }
        selected.append(replace(paradigm, **kept))
    return selected


def sentences_of(paradigms: Sequence[Paradigm]) -> list[str]:
    """Return all sentences of the paradigms. A sentence that several pairs share is returned once."""
    return list(dict.fromkeys(text for paradigm in paradigms for text in (*paradigm.good, *paradigm.bad)))


def _read_paradigm(location: str, name: str, setting: str) -> Paradigm:
    """Read one file. Raises DataError if the file is damaged."""
    try:
        lines = storage.read_at_most(location, MOST_BYTES).decode().split("\n")
        rows = [_checked_row(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    except (OSError, ValueError) as error:
        remedy = f"copy it again from {BASE}" if name in PARADIGMS else "only files of minimal pairs belong here"
        raise DataError(f"{setting} {location} cannot be read ({storage.first_line(error)}): {remedy}") from error
    numbers: Sequence[int] = [number for row in rows if (number := _pair_number(row)) is not None]
    if len(set(numbers)) < len(rows):
        numbers = range(len(rows))  # the lines, of a file without a number for each pair
    numbered = sorted(zip(numbers, rows, strict=True), key=lambda pair: pair[0])
    phenomenon = rows[0].get("linguistics_term") if rows else None
    return Paradigm(
        name=name,
        phenomenon=phenomenon if isinstance(phenomenon, str) else "",
        good=tuple(row["sentence_good"] for _, row in numbered),
        bad=tuple(row["sentence_bad"] for _, row in numbered),
        numbers=tuple(number for number, _ in numbered),
    )


def _checked_row(number: int, line: str) -> dict[str, Any]:
    """Return a line's JSON object. Raises ValueError if it is no object with both sentences."""
    try:
        row = storage.parse_json(line)
    except ValueError as error:
        raise ValueError(f"line {number} is not JSON: {error}") from error
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in SENTENCES):
        raise ValueError(f"line {number} is not an object with the texts {' and '.join(SENTENCES)}")
    return row


def _pair_number(row: dict[str, Any]) -> int | None:
    """Return the number of a pair if it has one: BLiMP's files call it pairID, the filtered ones pair_id."""
    number = str(row.get("pairID", row.get("pair_id")))
    return int(number) if number.isdecimal() else None


def _require_whole(paradigm: Paradigm, location: str, setting: str) -> None:
    """Raise DataError unless the paradigm has all pairs of BLiMP."""
    if not paradigm.whole:
        number = min(set(range(PAIRS)) - set(paradigm.pair_numbers))
        raise DataError(f"{setting} {location} has no pair {number} of {PAIRS:,}: copy it again from {BASE}")


def download(folder: str, report: Report, base: str = BASE, setting: str = "blimp") -> None:
    """Download all files into a new local folder. The folder appears only when all files are complete.

    Raises ConfigError if the folder cannot be written, DataError if a file cannot be downloaded.
    """
    storage.require_writable(setting, str(Path(folder).parent))
    report(f"{setting}: downloading {len(PARADIGMS)} files from {base} to {folder}")
    with tempfile.TemporaryDirectory(dir=Path(folder).parent, prefix=".blimp-") as temporary:
        complete = Path(temporary) / "data"
        complete.mkdir()
        with requests.Session() as session:
            for name in PARADIGMS:
                url = f"{base}/{name}.jsonl"
                try:
                    response = session.get(url, timeout=TIMEOUT)
                    response.raise_for_status()
                except OSError as error:  # all errors of requests are OSErrors
                    raise DataError(
                        f"{url} cannot be downloaded ({storage.first_line(error)}): copy BLiMP's files into a folder "
                        f"and name the folder with --{setting}"
                    ) from error
                (complete / f"{name}.jsonl").write_bytes(response.content)
        try:
            os.rename(complete, folder)
        except OSError as error:
            if not set(PARADIGMS) <= set(_paradigm_names(folder)):  # else another process has downloaded them meanwhile
                raise ConfigError(f"{setting} {folder} cannot be written: {storage.first_line(error)}") from error
