"""The `nightbatch` command: thin; every verb is a flow or a query. Heavy imports wait until a verb needs them.

Exit codes: 0 all good, 1 some rows failed or too many were rejected, 2 a mistake of the user's, 75 put down and resumable.
Results go to stdout, everything else to stderr.
"""

import signal
import sys
from importlib.metadata import version

import typer

from flows.verbs import look, machine, work
from flows.verbs.shared import print_json
from tasks.core.errors import NightbatchError, in_words
from tasks.interrupt import STOPPING, Interrupted, Interrupter

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Offline LLM batch inference: files in, answers in Parquet out, resumable to the token, queried in DuckDB.",
)
_VERBS = (
    *(work.run, work.ingest, work.plan, work.nightly),
    *(look.status, look.check, look.export, look.sql, look.telemetry),
    machine.doctor,
)
for _verb in _VERBS:
    app.command()(_verb)
app.add_typer(machine.power, name="power")

_RESUMABLE = ("run", "nightly")
_USERS_MISTAKES = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)


def main() -> int:
    """Entry point: turns every outcome into one clear line and an exit code."""
    Interrupter().install()
    usage_error = typer.BadParameter.__base__ or typer.BadParameter
    try:
        arguments = sys.argv[1:] or ["--help"]
        if arguments == ["--version"]:
            sys.stdout.write(f"nightbatch {version('nightbatch')}\n")
            return 0
        return int(typer.main.get_command(app).main(arguments, standalone_mode=False) or 0)
    except NightbatchError as error:
        return _say(str(error), error.exit_code)
    except Interrupted:
        for number in STOPPING:  # on its way out Python gives them their default, and one more would change the exit code
            signal.signal(number, signal.SIG_IGN)
        if sys.argv[1:2] and sys.argv[1] not in _RESUMABLE:
            return _say("stopped", 75)
        return _say("put down; everything generated is kept, and the same command goes on from there", 75)
    except BrokenPipeError:
        return 0
    except OSError as error:
        return _say(in_words(error), 2 if isinstance(error, _USERS_MISTAKES) else 1)
    except Exception as error:
        if not isinstance(error, usage_error):
            raise
        return _say(f"{error.format_message().rstrip('.')}; see nightbatch --help", 2)  # type: ignore[attr-defined]


def _say(message: str, exit_code: int) -> int:
    """The one line of an outcome that is no result; with --json as an object too, so that stdout is never empty."""
    sys.stderr.write(f"nightbatch: {message}\n")
    if "--json" in sys.argv:
        print_json({"error": message, "exit_code": exit_code})
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
