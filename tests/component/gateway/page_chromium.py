"""A real browser for tests of the page: Debian's Chromium, driven by playwright."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from tests.component.gateway.fleet_site import Site

ARTEFACTS = Path(__file__).resolve().parents[3] / "artefacts"
"""Where pictures of the page are left, to be looked at."""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), "")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium in PATH")
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Else the browser itself keeps other sites from loopback, and what we do is not seen.
    "--disable-features=LocalNetworkAccessChecks",
)


@asynccontextmanager
async def running_chromium() -> AsyncGenerator[Browser]:
    """Run a browser for as long as the block lasts, with a profile of its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*_QUIET])
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visitor:
    """Somebody who looks at the page, and what went wrong there meanwhile."""

    site: Site
    context: BrowserContext
    page: Page
    problems: list[str] = field(default_factory=list)

    async def open(self, address: str = "") -> None:
        """Open a screen, as somebody does who follows a link."""
        await self.page.goto(f"{self.site.url}/ui/{address}")

    async def log_in(self, token: str, address: str = "") -> None:
        """Open a screen and log in by typing a token."""
        await self.open(address)
        await self.page.fill("#token", token)
        await self.page.press("#token", "Enter")
        await self.page.wait_for_selector("header.top")

    async def text(self, selector: str = "main") -> str:
        """Return what is to be read there."""
        return await self.page.inner_text(selector)

    async def until_reads(self, text: str, selector: str = "main") -> None:
        """Wait until something is to be read there."""
        await self.page.wait_for_function(
            "([selector, text]) => document.querySelector(selector)?.innerText.includes(text)",
            arg=[selector, text],
        )

    async def picture(self, name: str) -> None:
        """Leave a picture of the whole screen among the artefacts."""
        ARTEFACTS.mkdir(exist_ok=True)
        await self.page.screenshot(path=ARTEFACTS / f"{name}.png")


@asynccontextmanager
async def visitor(browser: Browser, site: Site, **options: Any) -> AsyncGenerator[Visitor]:
    """Have somebody come with a browser that knows nothing yet."""
    context = await browser.new_context(
        ignore_https_errors=True, viewport=options.pop("viewport", {"width": 1280, "height": 800}),
        **options,
    )  # fmt: skip
    page = await context.new_page()
    page.set_default_timeout(30_000)
    found = Visitor(site, context, page)
    page.on("pageerror", lambda error: found.problems.append(f"error: {error}"))
    page.on(
        "console",
        lambda said: found.problems.append(said.text) if "Content Security" in said.text else None,
    )
    page.on("dialog", lambda dialog: found.problems.append(f"dialog: {dialog.message}"))
    try:
        yield found
    finally:
        await context.close()
