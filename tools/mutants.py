"""Change a file of the package a little, one place at a time; print the changes that no test
notices.

    python tools/mutants.py search/match.py tests/search/test_match.py --sample 40

A change exchanges an operator, adds 1 to a number or leaves out a statement. The changed file lies
in a copy of the package; the working tree stays as it is.
"""

import argparse
import ast
import io
import os
import random
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPY = ROOT / "build" / "mutants"
#: Token -> what takes its place.
TOKENS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+"}
TOKENS |= {"and": "or", "or": "and", "not": "", "in": "not in", "&": "|", "True": "False"}
STATEMENTS = ast.Assign | ast.AugAssign | ast.Raise | ast.Return | ast.Expr | ast.Continue
#: Seconds that the tests may take: a loop that no longer ends is noticed, too.
LIMIT = 300


def exchanges(source: str) -> Iterator[tuple[int, int, str]]:
    """Yield (first character, last character, what takes their place) of tokens and statements."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        other = TOKENS.get(token.string)
        if token.type == tokenize.NUMBER and token.string.isdecimal():
            other = str(int(token.string) + 1)
        if other is not None and token.type != tokenize.STRING:
            first = starts[token.start[0] - 1]
            yield first + token.start[1], first + token.end[1], other
    for node in ast.walk(ast.parse(source)):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, STATEMENTS) and not is_docstring:
            first = starts[node.lineno - 1] + node.col_offset
            yield first, first + len(ast.get_source_segment(source, node) or ""), "pass"


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yield each change of a module that can be compiled: what it is, and the changed source."""
    for first, last, other in exchanges(source):
        line = source.count("\n", 0, first) + 1
        changed = source[:first] + other + source[last:]
        try:
            compile(changed, "changed", "exec")
        except SyntaxError:  # "not not in", say
            continue
        yield f"line {line}: {source[first:last].splitlines()[0]!r} -> {other!r}", changed


def is_noticed(tests: list[str]) -> bool:
    """Return whether a test fails with the package as it is in the copy."""
    fast = ["-m", "not slow and not gpu and not browser and not docs"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *fast, *tests]
    environment = os.environ | {"PYTHONPATH": str(COPY), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return True
    if done.returncode not in (0, 1, 2):  # 2: the changed module could not be imported
        sys.exit(f"pytest ended with {done.returncode}: {done.stdout.decode()[-500:]}")
    return done.returncode != 0


def main() -> None:
    """Try a sample of the changes of one file, which a fixed seed draws."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", help="of the package, such as search/match.py")
    parser.add_argument("tests", nargs="+", help="the tests that hold it")
    parser.add_argument("--sample", type=int, default=40, help="changes to try")
    options = parser.parse_args()
    shutil.copytree(ROOT / "src", COPY, dirs_exist_ok=True)
    target = COPY / "channelhash" / options.file
    source = target.read_text(encoding="utf-8")
    found = list(mutants(source))
    sample = random.Random("mutants").sample(found, min(options.sample, len(found)))
    survivors = []
    for what, changed in sample:
        target.write_text(changed, encoding="utf-8")
        if not is_noticed(options.tests):
            survivors.append(what)
    target.write_text(source, encoding="utf-8")
    print(*survivors, sep="\n")
    print(f"{options.file}: {len(sample) - len(survivors)} of {len(sample)} changes noticed")


if __name__ == "__main__":
    main()
