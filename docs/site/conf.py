"""Sphinx's configuration of the docs site: the Markdown pages as they stand in the repository, links between them included.

The navigation is that of the pages themselves: README.md lists the pages of "Where to read on", and the README.md of a
folder below docs/ lists those of its folder. A page that none of them names hangs below the page whose text first links to
it. A page that no page links to, and a link to a file or heading that is not there, are warnings, which make_site.sh makes errors.
"""
import os
import re

project = "dtrain"
author = "The dtrain authors"
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(os.path.join(root, "CMakeLists.txt")) as cmake:
    release = re.search(r"project\(dtrain VERSION ([0-9.]+)", cmake.read())[1]
html_title = f"dtrain {release}"

extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md", "k8s/*.md"]
myst_heading_anchors = 6  # as GitHub names headings
highlight_language = "none"  # of blocks without a language
suppress_warnings = ["misc.highlighting_failure"]  # JSON with an ellipsis
html_theme = "furo"
html_copy_source = False
html_show_sphinx = False


def links(text):
    return re.findall(r"\]\(([^)#:\s]+\.md)(?:#[^)\s]*)?\)", text)


def navigation():
    """For each page the pages below it, in the order of their links; breadth first, a page once."""
    below, seen, queue = {}, {root_doc}, [root_doc]
    while queue:
        page = queue.pop(0)
        with open(os.path.join(root, page + ".md")) as file:
            text = file.read()
        if page == root_doc:
            text = text.split("\n## Where to read on\n")[1]
        for link in links(text):
            target = os.path.normpath(os.path.join(os.path.dirname(page), link))[: -len(".md")]
            if target not in seen and os.path.isfile(os.path.join(root, target + ".md")):  # else Sphinx warns
                seen.add(target)
                queue.append(target)
                below.setdefault(page, []).append(target)
    return below


def add_toctree(app, page, source):
    below = app.config.pages_below.get(page)
    if below:
        source[0] += "\n```{toctree}\n:hidden:\n" + "".join(f"/{name}\n" for name in below) + "```\n"


def setup(app):
    app.add_config_value("pages_below", navigation(), "env")
    app.connect("source-read", add_toctree)
