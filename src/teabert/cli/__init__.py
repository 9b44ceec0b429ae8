"""The command line: each command parses, calls one library function, prints. Heavy imports wait until a command runs."""

import sys
from typing import Annotated

import typer

from teabert import __version__
from teabert.cli import answering, learning, looking, papers
from teabert.cli.base import app
from teabert.errors import UserError

__all__ = ["app", "main"]

ORDER = [module.__name__ for module in (learning, answering, papers, looking)]
app.registered_commands.sort(key=lambda command: ORDER.index(getattr(command.callback, "__module__", "")))


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """One BERT, many tasks."""


def main() -> None:
    """Run the command line: a user's mistake is one message and exit code 2."""
    if "--version" in sys.argv[1:2]:
        typer.echo(f"teabert {__version__}")
        return
    debug = "--debug" in sys.argv
    arguments = [word for word in sys.argv[1:] if word != "--debug"]
    try:
        app(arguments)
    except UserError as error:
        if debug:
            raise
        typer.echo(f"teabert: {error}", err=True)
        sys.exit(2)
