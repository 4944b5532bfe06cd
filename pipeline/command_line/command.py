"""Parse a command line into settings: print the help, or check the words and build the settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.command_line.arguments import Argument, chosen_kinds, converted, words_of
from pipeline.command_line.help_text import Described, help_text
from pipeline.command_line.options import did_you_mean, flag_of, nearest, options_of
from pipeline.command_line.tree import build
from pipeline.errors import ConfigError, as_called

HELP = ("-h", "--help")


@dataclass(frozen=True, kw_only=True)
class Command(Described):
    """A command that reads its settings from command-line options."""

    several: bool = False
    """True: a repeatable option takes several values, as in --kinds A B, and the last such option counts. False: the
    user repeats the option, as in --task A --task B.
    """

    def words(self, arguments: Sequence[str], default: Any = None) -> list[Argument]:
        """Return the words of a command line.

        If the words ask for help, print the help with the values of `default`, and raise SystemExit.
        """
        if set(HELP) & set(arguments):
            print(as_called(help_text(self, arguments, default)))
            raise SystemExit(0)
        return words_of(arguments, self.settings, self.extra, self.positional, self.several)

    def parse(self, words: Sequence[Argument], default: Any = None) -> Any:
        """Return the settings of a command line.

        A setting that is not in `words` has the value in `default`, or the class's default value if `default` is None.
        `default` may hold invalid values, because options in `words` may replace them (see `unchecked`). If a plain
        option is repeated, its last value counts. Raises ConfigError for a missing or invalid setting.
        """
        given: dict[str, tuple[str, ...]] = {}
        for word in words:
            if word.option is not None:
                before = () if self.several else given.get(word.option.path, ())
                given[word.option.path] = (*before, *word.values)
        if default is None:
            for option in options_of(self.settings):
                if option.required and option.path not in given:
                    raise ConfigError(f"{option.path if self.positional else option.flag} is missing: {option.text}")
        return build(self.settings, default, chosen_kinds(words, self.settings, default), given, converted)

    def read(self, arguments: Sequence[str]) -> Any:
        """Return the settings of a command line. Raises ConfigError for invalid words, and SystemExit after help."""
        return self.parse(self.words(arguments))


def read_one_of(
    kinds: Sequence[type], arguments: Sequence[str], prog: str, about: str, positional: bool = False
) -> Any:
    """Return the settings of the class that the first word names.

    Raises ConfigError for an unknown word or an invalid setting, and SystemExit after printing help.
    """
    named = {flag_of(kind): kind for kind in kinds}
    word = arguments[0] if arguments else HELP[0]
    if word in HELP:
        lines = [f"  {name:12}{str(kind.__doc__).splitlines()[0]}" for name, kind in named.items()]
        usage = [f"usage: {prog} {'|'.join(named)} [OPTIONS]\n\n{about.strip()}\n", *lines]
        print(as_called("\n".join([*usage, f"\n{prog} WORD --help lists the options of a word."])))
        raise SystemExit(0)
    if word not in named:
        raise ConfigError(f"word {word} must be one of {', '.join(named)}{did_you_mean(nearest(word, named))}")
    about = str(named[word].__doc__)
    return Command(prog=f"{prog} {word}", about=about, settings=named[word], positional=positional).read(arguments[1:])
