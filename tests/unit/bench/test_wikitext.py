from pathlib import Path

import pytest

from pipeline.bench.wikitext import markers, measure

DUMP = """<mediawiki xml:lang="en">
<page><title>Cat</title><ns>0</ns><id>1</id><revision><text>The [[cat]] sat on the mat.</text></revision></page>
<page><title>Dog</title><ns>0</ns><id>2</id><revision><text>A dog barks at the cat.</text></revision></page>
<page><title>Mouse</title><ns>0</ns><id>3</id><revision><text>#REDIRECT [[Cat]]</text></revision></page>
</mediawiki>
"""
EXTRACTED = """<doc id="1" url="u" title="Cat">
Cat

The cat sat on the big mat.
</doc>
<doc id="9" url="u" title="Other">
Other

It is of no account here.
</doc>
"""


def test_markers_are_counted_for_a_million_words():
    found = markers(["a [[b | c", "d http://x __"])
    assert found["words"] == 7 and found["[[ per million words"] == pytest.approx(1e6 / 7)
    assert {name for name, count in found.items() if count} == {"words", *(f"{marker} per million words" for marker in ("[[", "|", "http", "__"))}


def test_a_dump_is_measured_against_wikiextractors_words(tmp_path: Path):
    (tmp_path / "dump.xml").write_text(DUMP)
    (tmp_path / "AA").mkdir()
    (tmp_path / "AA" / "wiki_00").write_text(EXTRACTED)
    found = measure(str(tmp_path / "dump.xml"), str(tmp_path / "AA"))
    assert (found["articles"], found["dropped: redirect"], found["words"], found["pages in both"]) == (2, 1, 12, 1)
    assert (found["recall"], found["length"]) == (6 / 7, 6 / 7) and found["megabytes a second"] > 0
    assert not any(count for name, count in found.items() if name.endswith("per million words"))
    assert "recall" not in measure(str(tmp_path / "dump.xml"))
