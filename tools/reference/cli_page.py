"""docs/reference/cli.md: every command, its options, their variables and defaults."""

import inspect
from collections.abc import Iterator

import click
from tools.reference.markdown import cell, table

from clusterspace.cli.main import SECTIONS, main
from clusterspace.cli.output import ExitCode
from clusterspace.cli.settings import CONFIG_VARIABLE, CommandPath, Setting

_INTRODUCTION = f"""\
Every option below is a setting with three names: the flag, an environment variable, and a key of
the file that `--config` or `{CONFIG_VARIABLE}` names. The first that is given counts, in this
order. The file is YAML: the words of the command, then the flag without its dashes. A key that no
command has is an error.

```yaml
hub:
  data-dir: /var/lib/clusterspace
  port: 6443
token:
  create: {{ttl: 600}}
```

`clusterspace config show` prints every setting with where it came from; `clusterspace config show
hub --port 1` does so for one command as it would be called. `kubectl clusterspace` is the same
program. Colours are for terminals only, and `NO_COLOR` turns them off. `-o json` and `-o yaml` are
for programs, `-o name` for `xargs`.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield "# Commands\n"
    yield _INTRODUCTION
    yield "## Exit codes\n"
    yield table(("code", "meaning"), [(f"`{each.value}`", each.meaning) for each in ExitCode])
    for title, verbs in SECTIONS.items():
        yield f"\n## {title}\n"
        for verb in verbs:
            command = main.get_command(click.Context(main), verb)
            assert command is not None
            for path in CommandPath((verb,), command).below():
                yield from _command(path)


def _command(path: CommandPath) -> Iterator[str]:
    name = " ".join(path.verbs)
    context = click.Context(path.command, info_name=f"clusterspace {name}")
    yield f"### {name}\n"
    usage = " ".join(path.command.collect_usage_pieces(context))
    yield f"```sh\nclusterspace {name} {usage}\n```\n"
    yield from _prose(path.command)
    rows = [_option(each, context) for each in path.settings()]
    if rows:
        yield table(("option", "variable", "default", "meaning"), rows) + "\n"


def _prose(command: click.Command) -> Iterator[str]:
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\nExamples:"):
            examples = inspect.cleandoc(paragraph.removeprefix("\b\nExamples:\n"))
            yield f"```sh\n{examples}\n```\n"
        else:
            yield f"{' '.join(paragraph.split())}\n"


def _option(setting: Setting, context: click.Context) -> tuple[str, str, str, str]:
    option = setting.option
    flags = ", ".join(f"`{each}`" for each in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {cell(_value(option, context))}"
    meaning, _, stated = (option.help or "").partition("[default: ")
    default = stated.rstrip("]") or _default(option)
    required = "**required**" if option.required else default
    return f"{flags}{value}", f"`{setting.variable}`", required, cell(meaning.strip())


def _value(option: click.Option, context: click.Context) -> str:
    kind = option.type
    written = option.make_metavar(context)
    if not isinstance(kind, click.IntRange | click.FloatRange):
        return written
    least = "" if kind.min is None else f"{kind.min}"
    most = "" if kind.max is None else f"{kind.max}"
    return f"{written.removesuffix(' RANGE')} {least}…{most}"


def _default(option: click.Option) -> str:
    held = option.to_info_dict()["default"]
    if option.is_flag or held in (None, ""):
        return "on" if held is True else ""
    return f"`{str(held).lower() if isinstance(held, bool) else held}`"
