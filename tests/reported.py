"""Pages taken apart: every element closed, what it names and links to, its tables as lists of cells."""

from html.parser import HTMLParser

VOID = {"meta", "img"}


class Page(HTMLParser):
    """A page; raises where an element is not closed, or closed by another."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.ids, self.words = [], [], [], []
        self.tables, self.links = {}, []
        self.caption, self.rows, self.cell = "", [], None
        self.feed(content)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.elements.append((tag, given))
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given[name] for name in ("href", "src", "xlink:href", "action") if name in given]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows = []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th", "caption"):
            self.cell = ""

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.rows[-1].append(self.cell.strip())
        if tag == "caption":
            self.caption = self.cell
        if tag == "table":
            self.tables[self.caption] = self.rows
        if tag in ("td", "th", "caption"):
            self.cell = None

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)
        if self.cell is not None:
            self.cell += data

    @property
    def text(self):
        """All that is read on it"""
        return " ".join(" ".join(self.words).split())

    def tags(self, name):
        """The attributes of all elements of a kind"""
        return [given for tag, given in self.elements if tag == name]


def page_of(path):
    """A written page, taken apart"""
    return Page(path.read_text(encoding="utf-8"))
