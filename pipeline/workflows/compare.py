"""Compare two encoders: fine-tune both on the same tasks and seeds, and pair their scores."""

from pipeline.config.locations import with_absolute_locations
from pipeline.config.predict import Compare
from pipeline.grid.comparison import comparison_lines, names_of_sides, require_equal_dropout, sides
from pipeline.reporting import Report
from pipeline.workflows.finetune import finetune


def compare(config: Compare, report: Report) -> list[str]:
    """Fine-tune both encoders and return the lines of the comparison. Raises PipelineError as `finetune` does."""
    both, results = sides(with_absolute_locations(config)), []
    names = names_of_sides(both)
    for name, side in zip(names, both, strict=True):
        report(name)
        results.append(finetune(side, report))
    require_equal_dropout(config, [result.dropout for result in results])
    rows, models = [result.rows for result in results], [result.models for result in results]
    return names + comparison_lines(both, rows, models)
