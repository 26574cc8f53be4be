"""Run the benchmarks: ``python -m benchmarks [training prediction together memory large accelerator] [--save]``."""

import argparse

from benchmarks import large, prediction, together, training_speed
from benchmarks.common import save, show

BENCHMARKS = {
    "training": training_speed.measure,
    "together": together.measure,
    "prediction": prediction.measure,
    "memory": prediction.memory,
    "large": large.measure,
    "accelerator": together.scaling,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(BENCHMARKS)}")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/NAME.json")
    options = parser.parse_args()
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    for name in options.names or [n for n in BENCHMARKS if n != "accelerator"]:
        rows = BENCHMARKS[name]()
        show(rows)
        if options.save:
            save(name, rows)


if __name__ == "__main__":
    main()
