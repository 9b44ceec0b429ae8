"""Tables of results in README.md: what stands between `<!-- from PATH -->` and `<!-- end -->` is made PATH's content.

python docs/insert.py        # after new results; a test says where they differ
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = re.compile(r"(<!-- from (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str, root: Path = ROOT) -> str:
    """The text with every such place filled"""
    return PLACE.sub(lambda found: f"{found[1]}\n{(root / found[2]).read_text(encoding='utf-8')}\n{found[3]}", text)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text(encoding="utf-8")), encoding="utf-8")
