"""Draw the lengths of a corpus's documents, as `show` does."""

import contextlib
import io
from pathlib import Path

from jobs.show import main
from tests.books import quiet_prepare
from tests.conftest import text_of

Path("texts").mkdir()
for number in range(9):
    Path(f"texts/{number}.txt").write_text(text_of(number))
quiet_prepare([Path("texts").absolute()], Path("corpus").absolute())
assert main(["lengths", "corpus", "--picture", "drawn.png"]) == 0
assert Path("drawn.png").read_bytes().startswith(b"\x89PNG")
with contextlib.redirect_stdout(help := io.StringIO()), contextlib.suppress(SystemExit):
    main(["--help"])
assert "lengths     Picture of the lengths of a corpus's documents." in help.getvalue(), help.getvalue()
