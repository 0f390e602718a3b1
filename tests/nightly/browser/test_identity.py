"""Tests signing in to the page of a learner with TLS and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rollcast.auth import Role, make_token
from rollcast.server_tls import ServerSecurity

from learner.service.identity.access import Access
from learner.service.identity.setup import Identity
from tests.learner.service.identity.certificates import Folder
from tests.learner.service.web.site import NAME, Site, serving
from tests.nightly.browser.webdriver import Browser

ENTER = "\ue007"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Returns a folder with a viewer and an operator."""
    return Folder.make(tmp_path / "certs", eyes=Role.VIEWER, ops=Role.OPERATOR)


@pytest.fixture
def site(folder: Folder) -> Iterator[Site]:
    """Serves with TLS and tokens."""
    with serving(identity=Identity(Access(folder.path / "tokens"), ServerSecurity(*folder.server))) as started:
        started.hooks.history_.add(NAME, 1.0, {})
        yield started


@pytest.fixture
def window(driver: str, site: Site, tmp_path: Path) -> Iterator[Browser]:
    """Opens a browser that accepts the certificate of an authority that it does not know; ends before the site."""
    opened = Browser(driver, tmp_path / "profile", "--ignore-certificate-errors")
    try:
        yield opened
    finally:
        opened.close()


def sign_in(window: Browser, token: str) -> None:
    """Types a token into the dialog."""
    window.wait_for(lambda: window.run("return document.querySelector('#dialog').open"), "the dialog")
    window.run("document.querySelector('#token').value = ''")
    window.write("#token", f"{token}{ENTER}")


def is_training(window: Browser) -> bool:
    """Returns whether the page shows a run that trains."""
    return window.text("#state") == "training"


def test_a_viewer_signs_in(window: Browser, folder: Folder, site: Site) -> None:
    """The page asks a stranger for a token and shows nothing; a viewer's shows the run, and cannot pause it."""
    window.open(site.url)
    window.wait_for(lambda: window.text("#state") == "signed out", "the page says that it needs a token")
    assert window.text("#dialog-title") == "Sign in"
    assert window.text("#run") == "Rollcast"
    sign_in(window, make_token())
    window.wait_for(lambda: "did not accept" in window.text("#token-wrong"), "the wrong token is refused")
    sign_in(window, folder.tokens["eyes"])
    window.wait_for(lambda: is_training(window), "the run")
    assert window.text("#notes") == ""
    assert window.run("return document.cookie") == ""
    assert window.run("return Object.values(sessionStorage).length") == 1
    assert window.run("return Object.values(localStorage).length") == 0
    window.click("#pause")
    window.wait_for(lambda: "viewer" in window.text("#toast"), "why it does not pause")
    assert site.hooks.calls == []
    window.open(site.url)
    window.wait_for(lambda: is_training(window), "the tab keeps the token")


def test_an_operator_signs_in_and_out(window: Browser, folder: Folder, site: Site) -> None:
    """An operator's token pauses the run; after signing out the page shows nothing and keeps no token."""
    window.open(site.url)
    sign_in(window, folder.tokens["ops"])
    window.wait_for(lambda: is_training(window), "the run")
    window.click("#pause")
    window.wait_for(lambda: site.hooks.calls == ["pause"], "the pause")
    window.wait_for(lambda: window.text("#operator") == "Sign out", "the way out")
    window.click("#operator")
    window.wait_for(lambda: window.text("#state") == "signed out", "the page is empty again")
    assert window.text("#run") == "Rollcast"
    assert window.run("return sessionStorage.length") == 0
    assert [line for line in window.complaints() if "401" not in line and "403" not in line] == []
