"""Parse a command line into settings: print the help, check the words, and let tyro convert types."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config.arguments import Word, in_order, words_of
from pipeline.config.called import as_called
from pipeline.config.help_text import Described, help_text
from pipeline.config.options import did_you_mean, flag_of, nearest, options_of
from pipeline.errors import ConfigError

HELP = ("-h", "--help")


@dataclass(frozen=True, kw_only=True)
class Command(Described):
    """A command that reads its settings from command-line options."""

    several: bool = False
    """True: a repeatable option takes several values, as in --kinds A B. False: the user repeats the option, as in
    --task A --task B.
    """

    def words(self, arguments: Sequence[str], default: Any = None) -> list[Word]:
        """Return the words of a command line.

        If the words ask for help, print the help with the values of `default`, and raise SystemExit.
        """
        if set(HELP) & set(arguments):
            print(as_called(help_text(self, arguments, default)))
            raise SystemExit(0)
        required = sum(option.required for option in options_of(self.settings)) if self.positional else 0
        return words_of(arguments, self.settings, self.extra, required, self.several)

    def parse(self, words: Sequence[Word], default: Any = None) -> Any:
        """Return the settings of a command line.

        A setting that is not in `words` has the value in `default`, or the class's default value if `default` is None.
        `default` may hold invalid values, because options in `words` may replace them (see `unchecked`). Raises
        ConfigError for a missing or invalid setting.
        """
        import tyro

        paths = {word.option.path for word in words if word.option is not None}
        if default is None:
            missing = [option for option in options_of(self.settings) if option.required and option.path not in paths]
            alone = sum(word.alone for word in words)
            for option in missing[alone if self.positional else 0 :]:
                raise ConfigError(f"{option.path if self.positional else option.flag} is missing: {option.text}")
        else:
            default = _without_repeated(default, paths)
        markers: list[Any] = [tyro.conf.PositionalRequiredArgs] if self.positional else []
        markers += [] if self.several else [tyro.conf.UseAppendAction]
        known = {} if default is None else {"default": default}
        ordered = in_order(words, self.settings, default)
        return tyro.cli(self.settings, prog=as_called(self.prog), args=ordered, config=markers, **known)

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


def _without_repeated(default: Any, paths: set[str], prefix: str = "") -> Any:
    """Return `default` with () for each repeatable setting in `paths`.

    Otherwise, the parser would append the given values to the default values.
    """
    values = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    for name, value in values.items():
        if dataclasses.is_dataclass(value):
            values[name] = _without_repeated(value, paths, f"{prefix}{name}.")
        elif isinstance(value, tuple) and prefix + name in paths:
            values[name] = ()
    return unchecked(type(default), values)


def unchecked(kind: type, values: dict[str, Any]) -> Any:
    """Build settings without running their checks, because options may still replace invalid values."""
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made
