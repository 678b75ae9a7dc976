"""How `make docs` makes a site of these pages, which are plain Markdown by themselves."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import jobs

project = "pagemill"
author = "the authors of pagemill"
release = version = jobs.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "_site"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_site"]
root_doc = "index"
nitpicky = True

html_theme = "furo"
html_title = f"pagemill {release}"
html_copy_source = False
html_show_sourcelink = False

# As code hosts make them, so that `page.md#a-heading` leads to the same place here and there.
myst_heading_anchors = 4
myst_enable_extensions: list[str] = []

# Docstrings have code between single backticks, as Markdown does.
default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_use_ivar = True
napoleon_use_rtype = False
# Types of Python and of other packages: their documentation would have to be fetched.
nitpick_ignore_regex = [("py:.*", r"(?!(jobs|engine)\.).*")]
