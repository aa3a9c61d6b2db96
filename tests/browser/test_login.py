"""The login page of users: a cookie that no script sees, changes after it, and the way out."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from kourou_rigs.console import ConsoleHere
from kourou_rigs.console_users import KnownSecrets, users_at


def preview_of_a_deletion(page: Page) -> None:
    """Open the dialog of a change, which the console has to accept for a preview."""
    page.get_by_role("button", name="DELETE departures").click()
    expect(page.get_by_role("dialog")).to_contain_text("cannot be undone")
    page.keyboard.press("Escape")


def test_a_user_logs_in_and_out(walking, scene) -> None:
    known = KnownSecrets({"till": "the-secret"})
    with ConsoleHere(scene.cluster) as console, users_at(console, known):
        walk = walking(console.address)
        walk.refusals = {401}
        page = walk.open("topics")
        user = page.get_by_role("textbox", name="User")
        secret = page.get_by_role("textbox", name="Secret")
        user.fill("till")
        secret.fill("guessed")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("unknown user or wrong secret")
        expect(page.get_by_role("alert")).not_to_contain_text("curl")
        assert walk.violations() == ""
        secret.fill("the-secret")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("link", name="departures", exact=True)).to_be_visible()
        expect(page.get_by_text("till", exact=True)).to_be_visible()
        [cookie] = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert page.evaluate("document.cookie") == ""
        preview_of_a_deletion(page)
        page.reload()  # the session outlives the page, and changes still work
        expect(page.get_by_text("till", exact=True)).to_be_visible()
        preview_of_a_deletion(page)
        page.get_by_role("button", name="Log out").click()
        expect(user).to_be_visible()
        assert page.context.cookies() == []
