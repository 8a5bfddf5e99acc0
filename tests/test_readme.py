"""What the README shows works."""

import re
from pathlib import Path

from small_runs import run_command

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_example_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "(8, 8)" in capsys.readouterr().out


def test_the_commands_and_options_exist(capsys):
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL))
    lines = [line.split("#")[0].split() for line in shell.splitlines() if line.startswith("channelhash ")]
    assert len(lines) >= 5
    for words in lines:
        command = words[1:3] if words[1] in ("data", "index") else words[1:2]
        capsys.readouterr()
        assert run_command(*command, "--help") == 0
        shown = capsys.readouterr().out
        for option in (word for word in words if word.startswith("-")):
            assert option in shown


def test_pictures_and_files_that_are_named_are_there():
    root = Path(__file__).parents[1]
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README) + re.findall(r"configs/\w+\.yaml", README):
        assert (root / path).exists(), path
