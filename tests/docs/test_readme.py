"""What the README shows works."""

import re

from pages import ROOT, blocks_of, check_command, commands_of

README = (ROOT / "README.md").read_text()


def test_the_python_example_runs(capsys):
    blocks = [block for block in blocks_of(README) if block.kind == "python"]
    assert blocks
    for block in blocks:
        exec(compile(block.code, f"README.md, line {block.line}", "exec"), {})
    assert "(8, 8)" in capsys.readouterr().out


def test_the_commands_options_pictures_and_files_exist():
    commands = [words for block in blocks_of(README) if block.kind == "sh" for words in commands_of(block)]
    ours = [words for words in commands if words[0] == "channelhash"]
    assert len(ours) >= 5
    for words in ours:
        check_command(words)

    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README) + re.findall(r"configs/\w+\.yaml", README):
        assert (ROOT / path).exists(), path
