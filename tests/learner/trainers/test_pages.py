"""Each trainer has a page beside its code, and the page says what the code does."""

import re

import pytest

from learner.settings.hyperparameters import OWN_TRAINERS
from learner.trainers.registry import own_trainers
from tests.learner.trainers.pages import FOLDER, SECTIONS, rows_of_code, rows_of_page, sections

PAGES = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize("name", sorted(own_trainers()))
def test_every_trainer_has_a_page(name: str) -> None:
    """Whoever can name a trainer in a run file can read what it does: loss, settings, what to watch, what goes wrong."""
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}: ")
    assert tuple(sections(page)) == SECTIONS
    assert all(text.strip() for text in sections(page).values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_settings_of_a_page_are_those_of_the_code(page: str) -> None:
    """The table has every hyperparameter of the trainer and no other, with its default, its range and a text."""
    told = rows_of_page((FOLDER / page).read_text(encoding="utf-8"))
    known = rows_of_code(OWN_TRAINERS[(FOLDER / page).stem].settings_model)
    assert set(told) == set(known)
    assert {key: row._replace(text="") for key, row in told.items()} == known
    assert all(row.text for row in told.values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    """Files that a page names are there."""
    text = (FOLDER / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", text):
        assert (FOLDER / target).exists(), f"{page} links to {target}"
