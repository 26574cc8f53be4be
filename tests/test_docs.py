"""The pages name what is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from collabnets import CollaboratingRegressor

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MODULES = {path.stem for path in (ROOT / "src/collabnets").iterdir() if not path.name.startswith("_")}


def names_of(page: Path) -> set[str]:
    """Names such as `losses.g_loss` between backticks, of modules of this package."""
    found = re.findall(r"`(?:collabnets\.)?((?:[a-z_]+\.)+[A-Za-z_]+)(?:\([^`]*)?`", page.read_text())
    return {name for name in found if name.split(".")[0] in MODULES and not name.endswith((".py", ".md"))}


def resolve(name: str) -> object:
    *path, last = name.split(".")
    for cut in range(len(path), 0, -1):
        try:
            found = import_module(".".join(["collabnets", *path[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in [*path[cut:], last]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_names_of_modules_can_be_found(page):
    for name in names_of(page):
        resolve(name)


def test_the_map_of_the_theory_is_read():
    assert {"losses.g_loss", "training.steps.f_step", "inversion.invert_logit"} <= names_of(ROOT / "docs/theory.md")
    with pytest.raises(AttributeError):
        resolve("training.steps.no_such_step")


@pytest.mark.parametrize(
    "page", [*PAGES, *ROOT.glob("*.md"), ROOT / "benchmarks/README.md", ROOT / "results/README.md"]
)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_links_to_headings_lead_somewhere():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            text = (page.parent / target).read_text() if target else page.read_text()
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            slugs = {re.sub(r"[^\w\s-]", "", h).strip().lower().replace(" ", "-") for h in headings}
            assert anchor in slugs, f"{page.name} links to {target}#{anchor}"


def test_the_table_of_modules_for_contributors_is_whole():
    named = set(re.findall(r"`([a-z_]+)(?:\.py|/)`", (ROOT / "CONTRIBUTING.md").read_text()))
    assert named >= MODULES - {"py"}


def test_parameters_named_in_the_theory_are_there():
    text = (ROOT / "docs/theory.md").read_text()
    for name in ("z_distribution", "q_distribution", "moment_matching", "consistency", "n_members", "n_draws"):
        assert f"`{name}" in text
        assert name in CollaboratingRegressor().get_params()
