"""The examples, and the one in the README, run as a reader would run them and say what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# file -> what its output must match
EXAMPLES = {
    "quickstart.py": r"90 % intervals.*lower +upper.*coverage of the 90 % interval 0\.\d+.*predicts the same: True",
    "custom_encoder.py": r"plain: CRPS \d.*periodic: CRPS \d.*truth: CRPS 0\.29.*predicts the same: True",
    "tail_focused.py": r"p\(q\).*uniform +\d.*Beta\(1/2, 1/2\) +\d",
}


def run(*command: str) -> str:
    """Run Python with the package on its path, warnings as errors; give what it printed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "QUICK": "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_in_the_table():
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name):
    assert re.search(EXAMPLES[name], run(str(ROOT / "examples" / name)), re.DOTALL)


def readme_example() -> str:
    """Give the first block of Python in the README."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


def test_readme_example_is_short_and_runs(tmp_path):
    code = readme_example()
    assert len([text for text in code.splitlines() if text.strip()]) <= 15
    # as printed it trains for the default time; here for a moment
    quick = code.replace("CollaboratingRegressor(", "CollaboratingRegressor(pretrain_iter=200, max_iter=200, ")
    assert quick != code
    script = tmp_path / "readme.py"
    script.write_text(quick)
    lines = run(str(script)).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("(300, 2)")
