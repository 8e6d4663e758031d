"""Every setting has three names: a flag, an environment variable and a key of the config file.

    clusterspace hub --data-dir D
    CLUSTERSPACE_HUB_DATA_DIR=D clusterspace hub
    clusterspace --config F hub        F: {hub: {data-dir: D}}

The first of them that is given counts; the order is the one above.
"""

import difflib
import os
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
        """Return the options that are settings: not those that only show something, like help."""
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


def given_setting(context: click.Context, verb: str, key: str) -> str | None:
    """Return what the environment or the config file says for an option of another verb."""
    by_variable = os.environ.get("_".join((PREFIX, verb, key)).replace("-", "_").upper())
    by_file = cast("DefaultMap", (context.find_root().default_map or {}).get(verb) or {})
    found: object = by_variable or by_file.get(key.replace("-", "_"))
    return None if found is None else str(found)


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
    return _read_section(_Section(file, (), content), table)


@dataclass(frozen=True, slots=True)
class _Section:
    """What the file has for one command, or for a group of them."""

    file: Path
    verbs: tuple[str, ...]
    content: object

    def entries(self, known: list[str], what: str) -> Mapping[str, object]:
        """Return the values by key; BadParameter for a key that is not known."""
        if self.content is None:
            return {}
        if not isinstance(self.content, dict):
            where = ".".join(self.verbs)
            raise _bad(self.file, f"{where or 'the file'} must hold names and values")
        content = cast("dict[object, object]", self.content)
        for key in map(str, content):
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                path = ".".join((*self.verbs, key))
                raise _bad(self.file, f"{path}: there is no such {what}{hint}")
        return {str(key): value for key, value in content.items()}


def _read_section(section: _Section, command: click.Command) -> DefaultMap:
    if isinstance(command, click.Group):
        context = click.Context(command)
        inner = section.entries(command.list_commands(context), "command")
        return {
            verb: _read_section(
                _Section(section.file, (*section.verbs, verb), content),
                cast("click.Command", command.get_command(context, verb)),
            )
            for verb, content in inner.items()
        }
    settings = {each.key: each for each in CommandPath(section.verbs, command).settings()}
    return {
        settings[key].name: _read_value(section.file, settings[key], value)
        for key, value in section.entries(list(settings), "option").items()
    }


def _read_value(file: Path, setting: Setting, value: object) -> str | tuple[str, ...]:
    """Return a value as the text it would be on the command line, if its option takes it."""
    texts: list[str] = []
    for each in cast("list[object]", value) if isinstance(value, list) else [value]:
        if not isinstance(each, str | int | float):
            raise _bad(file, f"{setting.path}: a text, a number, true or false is needed")
        texts.append(str(each).lower() if isinstance(each, bool) else str(each))
        try:
            setting.option.type.convert(texts[-1], setting.option, None)
        except click.BadParameter as error:
            raise _bad(file, f"{setting.path}: {error.message}") from error
    if setting.option.multiple:
        return tuple(texts)
    if len(texts) != 1:
        raise _bad(file, f"{setting.path}: it takes one value")
    return texts[0]


def _bad(file: Path, why: str) -> click.BadParameter:
    return click.BadParameter(f"{file}: {why}", param_hint="--config")
