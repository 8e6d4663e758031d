"""Every setting has three names: a flag, an environment variable and a key of the config file.

    clusterspace hub --data-dir D
    CLUSTERSPACE_HUB_DATA_DIR=D clusterspace hub
    clusterspace --config F hub        F: {hub: {data-dir: D}}

The first of them that is given counts; the order is the one above.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import click

PREFIX: Final = "CLUSTERSPACE"
CONFIG_VARIABLE: Final = f"{PREFIX}_CONFIG"

DefaultMap: TypeAlias = "dict[str, Any]"
"""Values by verb and by the parameter's name, as click wants them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One option of one command, and what it is called elsewhere."""

    verbs: tuple[str, ...]
    option: click.Option

    @property
    def flag(self) -> str:
        """What it is called on the command line."""
        return next(each for each in self.option.opts if each.startswith("--"))

    @property
    def key(self) -> str:
        """What it is called in the config file, below its verb."""
        return self.flag.removeprefix("--")

    @property
    def path(self) -> str:
        """Where it is in the config file."""
        return ".".join((*self.verbs, self.key))

    @property
    def variable(self) -> str:
        """What it is called in the environment."""
        return "_".join((PREFIX, *self.verbs, self.key)).replace("-", "_").upper()

    @property
    def name(self) -> str:
        """What its command calls the value."""
        return str(self.option.name)


@dataclass(frozen=True, slots=True)
class CommandPath:
    """A command, and the words that lead to it."""

    verbs: tuple[str, ...]
    command: click.Command

    def settings(self) -> list[Setting]:
        """Return what the command can be told; what only shows and ends, such as help, is none."""
        options = [each for each in self.command.params if isinstance(each, click.Option)]
        return [Setting(self.verbs, each) for each in options if not each.is_eager]

    def below(self) -> "Iterator[CommandPath]":
        """Yield the command itself, or those it is a group of."""
        if not isinstance(self.command, click.Group):
            yield self
            return
        context = click.Context(self.command)
        for name in self.command.list_commands(context):
            found = self.command.get_command(context, name)
            if found is not None:
                yield from CommandPath((*self.verbs, name), found).below()


def name_variables(verbs: tuple[str, ...], command: click.Command) -> None:
    """Let the options of a command be set by environment variables named after their flags.

    What click would do by itself names them after Python parameters, which nobody can see.
    """
    for each in CommandPath(verbs, command).below():
        for setting in each.settings():
            setting.option.envvar = setting.variable


def read_config(file: Path, table: click.Group) -> DefaultMap:
    """Read a config file; BadParameter names the key that no command has, or the bad value."""
    import yaml

    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise _bad(file, str(error.strerror).lower()) from error
    except UnicodeDecodeError as error:
        raise _bad(file, "it is no text") from error
    except yaml.YAMLError as error:
        raise _bad(file, f"it is no YAML: {' '.join(str(error).split())}") from error
    return _read_group(_Reading(file, ()), content, table)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Where in the file we are."""

    file: Path
    verbs: tuple[str, ...]

    def at(self, key: str) -> str:
        return ".".join((*self.verbs, key))

    def refuse_others(self, key: str, known: list[str], what: str) -> None:
        if key in known:
            return
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise _bad(self.file, f"{self.at(key)}: there is no such {what}{hint}")

    def entries(self, content: object) -> Mapping[str, object]:
        if content is None:
            return {}
        if not isinstance(content, dict):
            where = ".".join(self.verbs)
            raise _bad(self.file, f"{where or 'the file'} must hold names and values")
        return {str(key): value for key, value in cast("dict[object, object]", content).items()}


def _read_group(reading: _Reading, content: object, group: click.Group) -> DefaultMap:
    context = click.Context(group)
    known = group.list_commands(context)
    values: DefaultMap = {}
    for verb, below in reading.entries(content).items():
        reading.refuse_others(verb, known, "command")
        command = cast("click.Command", group.get_command(context, verb))
        inner = _Reading(reading.file, (*reading.verbs, verb))
        is_group = isinstance(command, click.Group)
        values[verb] = (_read_group if is_group else _read_options)(inner, below, command)  # pyright: ignore[reportArgumentType]
    return values


def _read_options(reading: _Reading, content: object, command: click.Command) -> DefaultMap:
    settings = {each.key: each for each in CommandPath(reading.verbs, command).settings()}
    values: DefaultMap = {}
    for key, value in reading.entries(content).items():
        reading.refuse_others(key, list(settings), "option")
        values[settings[key].name] = _read_value(reading.file, settings[key], value)
    return values


def _read_value(file: Path, setting: Setting, value: object) -> str | tuple[str, ...]:
    """Return a value as the text it would be on the command line, if its option takes it."""
    many = cast("list[object]", value) if isinstance(value, list) else [value]
    texts = tuple(_text(file, setting, each) for each in many)
    for each in texts:
        try:
            setting.option.type.convert(each, setting.option, None)
        except click.BadParameter as error:
            raise _bad(file, f"{setting.path}: {error.message}") from error
    if setting.option.multiple:
        return texts
    if len(texts) != 1:
        raise _bad(file, f"{setting.path}: it takes one value")
    return texts[0]


def _text(file: Path, setting: Setting, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise _bad(file, f"{setting.path}: a text, a number, true or false is needed")


def _bad(file: Path, why: str) -> click.BadParameter:
    return click.BadParameter(f"{file}: {why}", param_hint="--config")
