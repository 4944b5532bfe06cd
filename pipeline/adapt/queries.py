"""Read the queries for comparing encoders, and their judgements."""

from pipeline.config.adapt import Adapt
from pipeline.config.embed import Search
from pipeline.embed.query_files import Query, is_file, read_queries
from pipeline.errors import DataError
from pipeline.evaluation.retrieval.beir import read_judgements
from pipeline.files.locations import absolute
from pipeline.predict.inputs import list_inputs, parts_of
from pipeline.tables.bad_rows import BadRows
from pipeline.tables.columns import MissingColumn
from pipeline.tables.roles import BEIR_ID, ID, TEXT


def given_queries(config: Adapt) -> list[Query]:
    """Return the queries of the settings; none if the settings have none. A file may have BEIR's column _id.

    Raises ConfigError or DataError for queries or judgements that cannot be read.
    """
    if config.judgements is not None:
        _require_judgements(config.judgements)
    if config.queries is None:
        return []
    return read_queries(Search(vectors=config.output, queries=config.queries, id=_id_column(config.queries)))


def _id_column(queries: str) -> str | None:
    """Return BEIR_ID if a file of queries has this column and no column id. Raises DataError without a column text."""
    if not is_file(queries):
        return None
    (file, *_) = list_inputs(absolute(queries), "auto", tags=False, setting="queries", remedy="")
    columns = next((table.column_names for table in parts_of(file, 1)), [])
    if columns and TEXT not in columns:
        raise MissingColumn(file.location, TEXT, columns, f"rename the column of the queries to {TEXT}")
    return BEIR_ID if BEIR_ID in columns and ID not in columns else None


def _require_judgements(location: str) -> None:
    """Raise DataError if a file of judgements does not exist, cannot be read, or is empty."""
    if not list(read_judgements(location, BadRows())):
        raise DataError(f"judgements ({location}) has no rows: give lines of query id, document id and grade")
