"""The command ``collabnets``; the only module that prints.

To add a subcommand, write a function that declares its arguments and sets ``run``, and list it in ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from collabnets import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="collabnets", description="Calibrated predictive distributions for regression by Collaborating Networks."
    )
    parser.add_argument("--version", action="version", version=f"collabnets {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in COMMANDS:
        add(subparsers)
    arguments = parser.parse_args(argv)
    if not hasattr(arguments, "run"):
        parser.print_help(sys.stderr)
        return 2
    try:
        return arguments.run(arguments)
    except (ImportError, OSError, ValueError) as error:
        print(f"collabnets: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("collabnets: stopped.", file=sys.stderr)
        return 130


# -------------------------------------------------------------------- collabnets demo


def add_demo(subparsers) -> None:
    """Declare ``collabnets demo``."""
    parser = subparsers.add_parser(
        "demo",
        help="fit the paper's first synthetic data, compare with the truth, draw a picture",
        description=(
            "Fit Collaborating Networks to the heteroskedastic Gaussian data of the paper's Section 5.3.1, print "
            "the metrics beside those of the true distribution, and write one picture, OUT/demo.png."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="folder for the picture")
    parser.add_argument("--seed", type=_whole_number(0, 2**32 - 1), default=0, help="seed of the fit")
    parser.add_argument(
        "--pretrain-iter", type=_whole_number(0), default=20_000, metavar="N", help="pre-training iterations of g"
    )
    parser.add_argument(
        "--max-iter", type=_whole_number(0), default=10_000, metavar="N", help="joint iterations of g and f"
    )
    parser.set_defaults(run=run_demo)


def run_demo(arguments: argparse.Namespace) -> int:
    """Run the demo and print what it found."""
    from collabnets import demo
    from collabnets.paper import settings

    paper = settings.SYNTHETIC
    print("Data: y ~ N(mu, sigma^2), x = (mu, sigma); Section 5.3.1 of the paper, its first split.")
    print(
        f"Fit:  the paper's settings; {arguments.pretrain_iter:,} pre-training and {arguments.max_iter:,} joint "
        f"iterations (the paper has {paper['pretrain_iter']:,} and {paper['max_iter']:,}).",
        flush=True,
    )
    found = demo.run(
        arguments.out,
        seed=arguments.seed,
        pretrain_iter=arguments.pretrain_iter,
        max_iter=arguments.max_iter,
        progress=True,
    )
    print(
        f"      {found.n_iter:,} iterations on {found.n_train} rows in {found.fit_seconds:.1f} s, compilation included."
    )
    print(f"\nOn {found.n_test} test rows:\n")
    print(format_table(found.scores))
    print("\ntruth = the distribution that the data came from; it is not perfect either on a finite sample.")
    print(f"Picture: {found.picture}")
    return 0


def format_table(scores) -> str:
    """Lay out the demo's scores as aligned columns."""
    width = max(len(score.name) for score in scores)
    lines = [f"{'metric':<{width}}  {'CN':>8}  {'truth':>8}", "-" * (width + 20)]
    lines += [f"{name:<{width}}  {model:>8.{digits}f}  {truth:>8.{digits}f}" for name, model, truth, digits in scores]
    return "\n".join(lines)


# -------------------------------------------------------------------- collabnets reproduce


def add_reproduce(subparsers) -> None:
    """Declare ``collabnets reproduce``."""
    from collabnets.paper.reproduce import TARGETS

    parser = subparsers.add_parser(
        "reproduce",
        help="regenerate a table or figure of the paper",
        description=(
            "Regenerate a table or figure of the paper: our numbers beside the printed ones, figures as PNG. Results "
            "are kept in OUT/cells.jsonl as they come; the same command after an interruption goes on from there, and "
            "targets share what they have in common."
        ),
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("target", choices=[*TARGETS, "all"], metavar="TARGET", help=f"{', '.join(TARGETS)}, or all")
    parser.add_argument("--out", type=Path, default=Path("out/paper"), metavar="DIR", help="folder for the results")
    parser.add_argument(
        "--replications", type=_whole_number(1), metavar="N", help="how many; the paper's number by default"
    )
    parser.add_argument(
        "--quick", action="store_true", help="short training, few replications: shows that it works, in minutes"
    )
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="only these, such as CN-g EN; all by default")
    parser.add_argument(
        "--data", nargs="+", metavar="NAME", help="of the real data sets only these, such as cpu mpg; all by default"
    )
    parser.add_argument("--draw-only", action="store_true", help="use the results that are there, fit nothing")
    parser.set_defaults(run=run_reproduce)


def run_reproduce(arguments: argparse.Namespace) -> int:
    """Run one or all targets and print what they found."""
    from collabnets.paper.reproduce import TARGETS, reproduce
    from collabnets.paper.target import NothingAsked

    every = arguments.target == "all"
    failed: dict[tuple[str, str, str], set[int]] = {}
    status = 0
    for target in TARGETS if every else [arguments.target]:
        try:
            report = reproduce(
                target,
                arguments.out,
                replications=arguments.replications,
                quick=arguments.quick,
                methods=None if arguments.methods is None else tuple(arguments.methods),
                data=None if arguments.data is None else tuple(arguments.data),
                lenient=every,
                fit=not arguments.draw_only,
                progress=True,
            )
        except KeyboardInterrupt:
            print(
                f"collabnets: stopped; the same command goes on from the results in {arguments.out}.", file=sys.stderr
            )
            return 130
        except NothingAsked as error:
            print(f"collabnets: {'' if every else 'error: '}{target}: {error}", file=sys.stderr)
            status = status if every else 1
            continue
        except (ImportError, OSError, ValueError) as error:  # the other targets go on
            print(f"collabnets: error: {target}: {error}", file=sys.stderr)
            status = 1
            continue
        if report.text:
            print(f"\n{report.text}\n")
        for path in report.files:
            print(f"{target}: wrote {path}", flush=True)
        for cell in report.failed:
            failed.setdefault((cell["experiment"], cell["method"], cell["error"]), set()).add(cell["replication"])
    kind = "missing" if arguments.draw_only else "failed"
    for (experiment, method, reason), replications in failed.items():
        numbers = ", ".join(map(str, sorted(replications)))
        plural = "s" if len(replications) > 1 else ""
        print(f"collabnets: {kind}: {experiment}, {method}, replication{plural} {numbers}: {reason}", file=sys.stderr)
    if failed:
        again = (
            "done by the same command without --draw-only" if arguments.draw_only else "tried again by the same command"
        )
        print(f"collabnets: what {'is' if arguments.draw_only else 'has'} {kind} is {again}.", file=sys.stderr)
    return 1 if failed else status


# -------------------------------------------------------------------- helpers


def _whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Read an argument as a whole number in a range, with an error that says the range."""
    wanted = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if number < low or (high is not None and number > high):
            raise argparse.ArgumentTypeError(f"expected {wanted}, not {text!r}")
        return number

    return read


COMMANDS: tuple[Callable[..., None], ...] = (add_demo, add_reproduce)

if __name__ == "__main__":
    sys.exit(main())
