"""Every file that is not text has its licence on the page of licences."""

import re
import subprocess
from fnmatch import fnmatch

from pages import DOCS, ROOT

#: What git keeps as text of ours, all under the licence of the project.
_TEXT = re.compile(
    r"\.(py|pyi|md|ya?ml|toml|txt|json|sh|html|js|css|sbatch|cff|j2)$|(^|/)[^./]+$|(^|/)\.[\w-]+$|Dockerfile"
)


def test_every_file_that_is_not_text_is_in_the_table():
    page = (DOCS / "reference" / "licences.md").read_text(encoding="utf-8")
    patterns = [pattern for row in re.findall(r"^\| (`.+?) \|", page, re.M) for pattern in re.findall(r"`(.+?)`", row)]
    assert len(patterns) > 5
    kept = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [name for name in kept.split("\0") if name and not _TEXT.search(name)]
    assert [name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(fnmatch(name, pattern) for name in kept.split("\0"))] == []
