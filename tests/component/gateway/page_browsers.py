"""What a browser sends to the fleet API server, without a browser."""

from dataclasses import dataclass

from tests.component.gateway.fleet_site import Heard, Site

JANE = "jane-token"
OWN_PAGE = (("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Dest", "empty"))


@dataclass
class Browser:
    """A browser with one cookie, on our own page unless a test says otherwise."""

    site: Site
    cookie: str = ""

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        said: tuple[tuple[str, str], ...] = OWN_PAGE,
        token: str = "",
    ) -> Heard:
        cookies = (("Cookie", self.cookie),) if self.cookie else ()
        return await self.site.ask(method, path, body, token=token, headers=(*said, *cookies))

    async def log_in(self, token: str) -> Heard:
        answer = await self.ask("POST", "/ui/session", token=token)
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer


async def logged_in(site: Site, token: str = JANE) -> Browser:
    browser = Browser(site)
    await browser.log_in(token)
    return browser
