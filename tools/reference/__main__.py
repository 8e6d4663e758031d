"""Write docs/reference from the code, or with --check say which page is stale."""

import sys
from pathlib import Path
from typing import Final

from tools.reference import api_page, cli_page, conditions_page, metrics_page
from tools.reference.field_tables import TABLES

DIRECTORY: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES: Final = {
    "api.md": api_page.page,
    "cli.md": cli_page.page,
    "conditions.md": conditions_page.page,
    "metrics.md": metrics_page.page,
}


def stale_pages() -> list[str]:
    """Return the pages that are not what the code says."""
    stale = [name for name, page in PAGES.items() if _held(name) != page()]
    return stale + [each.file.name for each in TABLES if each.file.read_text() != each.page()]


def _held(name: str) -> str:
    file = DIRECTORY / name
    return file.read_text() if file.exists() else ""


def main() -> None:
    """Write or check."""
    if "--check" in sys.argv[1:]:
        stale = stale_pages()
        sys.exit(f"stale: {', '.join(stale)}; run `make generate`" if stale else 0)
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (DIRECTORY / name).write_text(page())
    for table in TABLES:
        table.file.write_text(table.page())


if __name__ == "__main__":
    main()
