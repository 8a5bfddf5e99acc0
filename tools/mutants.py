"""Change the source a little, many times, and count which changes the tests notice.

    python tools/mutants.py                    the sample; what is known is in build/mutants.jsonl
    python tools/mutants.py --sample 50 --only losses/
    python tools/mutants.py --show KEY         what one of them changes

A mutant (`small_changes.py`) is killed if the tests of its file fail or do not end. Those that survive are printed, and
the command fails unless enough are killed of those that can be: `mutants.json` lists the ones that change nothing that
a caller can see, each with the reason. The sample goes by a hash of the mutants' keys, so that it stays the same where
code has not changed.

Each mutant runs in a fork of one process that has imported the libraries, but nothing of the package.
"""

import argparse
import ast
import contextlib
import difflib
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest
from small_changes import mutants, mutate

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "channelhash"
OUT = ROOT / "build" / "mutants.jsonl"
HARMLESS = Path(__file__).with_suffix(".json")

#: Share of the mutants that change something, which has to be killed.
ENOUGH = 0.95
#: The sample is those with the smallest hashes of this and their key.
SEED = "mutants-1"
#: Files of the package, by how their path begins, and the tests below ``tests`` that hold them, quickest first. The
#: examples of a file are run before, and in a folder the tests named like the file.
TESTS = {
    "channels.py": "test_channels.py losses",
    "losses/": "losses",
    "codes/": "codes/test_codes.py codes/test_code_set.py",
    "codes/column_checksums.py": "codes/test_column_checksums.py codes/test_code_set.py",
    "codes/foreign_files.py": "codes/test_foreign_files.py",
    "metrics/": "metrics",
    "search/alike.py": "search/test_alike.py",
    "search/catalogue.py": "search/test_catalogue.py",
    "search/collapse.py": "search/test_match.py search/test_duplicates.py",
    "search/filter_parser.py": "search/test_filters.py",
    "search/filters.py": "search/test_filters.py search/test_catalogue.py",
    "search/fused.py": "search/test_query.py search/test_match.py search/test_paging.py",
    "search/fusion.py": "search/test_fusion.py search/test_query.py",
    "search/index/plain_scan.py": "search/index/test_index.py",
    "search/match.py": "search/test_match.py",
    "search/paging.py": "search/test_paging.py",
    "search/projections.py": "search/test_projections.py search/test_ranked_codes.py",
    "search/question.py": "search/test_question.py search/test_query.py",
    "search/ranked_codes.py": "search/test_ranked_codes.py search/test_rerank.py",
    "search/rerank.py": "search/test_rerank.py search/test_query.py",
    "search/validation.py": "search/test_validation.py search/index/test_index.py",
}
#: What tests import, loaded once. Nothing that imports the package.
LIBRARIES = "torch numba scipy.stats scipy.optimize h5py pyarrow.parquet PIL.Image sqlglot typer pydantic rich"


class Job(NamedTuple):
    """A mutant to be tried.

    Attributes:
        file: relative to the package.
        key: names the mutant within the file.
        line: where it is.
    """

    file: str
    key: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.key}"


def jobs(only: str, size: int, compiled: bool = False) -> list[Job]:
    """Return the sample of mutants of files whose path begins with ``only``, in the order of the files.

    Files whose functions Numba compiles are part of it with ``compiled``: each mutant of theirs takes a minute.
    """
    all_ = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file, source = path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
        if file.startswith(only) and tests_of(file) and (compiled or not is_compiled(ast.parse(source))):
            all_ += [Job(file, mutant.key, mutant.line) for mutant in mutants(source)]
    all_.sort(key=lambda job: hashlib.sha256(f"{SEED} {job.file} {job.key}".encode()).digest())
    return sorted(all_[:size])


def tests_of(file: str) -> list[str]:
    """Return the paths of the tests that hold a file, its own examples first; none if it is not mutated."""
    starts = [start for start in TESTS if file.startswith(start)]
    if not starts:
        return []
    named = TESTS[max(starts, key=len)].split()
    return [str(PACKAGE / file), *(str(ROOT / "tests" / name) for name in named)]


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Import one module from a changed tree, and compile what Numba compiles without its cache."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        parts = Path("channelhash", file).with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.path, self.tree = PACKAGE / file, tree

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        """Come before pytest's own importer of tests, which takes the file with the examples for one."""
        sys.meta_path.insert(0, self)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Begin with the examples of the file and the tests that are named like it, which are likely to fail."""
        items.sort(key=lambda item: item.path.stem.removeprefix("test_") != self.path.stem)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        folder = [str(self.path.parent)] if self.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, self.path, loader=self, submodule_search_locations=folder)

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: str) -> bytes:
        return self.path.read_bytes()

    def get_code(self, fullname: str) -> Any:
        return compile(self.tree, str(self.path), "exec")


def run_tests(file: str, tree: ast.Module | None, log: Path) -> int:
    """Run the tests of a file in this process, which is a fork, and return pytest's exit status."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if tree is not None and is_compiled(tree):
        from numba.core.dispatcher import Dispatcher

        Dispatcher.enable_caching = lambda self: None
    # The same examples each time, and a failure as it is found.
    quick = hypothesis.settings(
        derandomize=True, database=None, max_examples=25, phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate]
    )
    hypothesis.settings.register_profile("mutants", quick)
    hypothesis.settings.load_profile("mutants")
    options = ["-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:benchmark"]
    marks = ["-m", "not slow and not gpu and not browser and not docs"]
    with contextlib.chdir(ROOT):
        return int(pytest.main([*options, *marks, *tests_of(file)], plugins=[_Mutated(file, tree)] if tree else []))


def is_compiled(tree: ast.Module) -> bool:
    """Return whether Numba compiles functions of a file."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    decorators = {ast.unparse(one).partition("(")[0] for function in functions for one in function.decorator_list}
    return not decorators.isdisjoint({"njit", "parallel_loop", "intrinsic"})


def in_fork(file: str, tree: ast.Module | None, limit: float) -> tuple[str, float]:
    """Run the tests of a file with its tree changed; return (killed, survived or timeout; the seconds)."""
    started, log = time.monotonic(), OUT.with_suffix(".log")
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        status = 1
        try:
            status = run_tests(file, tree, log)
        finally:
            os._exit(status)
    while time.monotonic() - started < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code in (3, 4, 5):  # pytest's own troubles, and no tests at all
                raise SystemExit(f"{file}: pytest ended with {code}; see {log}")
            return "survived" if code == 0 else "killed", time.monotonic() - started
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout", limit


def digest(paths: list[str]) -> str:
    """Return a hash of files, and of all tests in folders."""
    state = hashlib.sha256()
    for path in map(Path, paths):
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            state.update(file.read_bytes())
    return state.hexdigest()[:16]


def read_known(out: Path) -> dict[tuple[str, str], str]:
    """Return the outcomes that count: a kill while the source is the same, a survival while the tests are too."""
    known = {}
    for line in out.read_text(encoding="utf-8").splitlines() if out.exists() else ():
        one = json.loads(line)
        source, *tests = tests_of(one["file"])
        same = Path(source).exists() and digest([source]) == one["source"]
        if same and (one["outcome"] != "survived" or digest(tests) == one["tests"]):
            known[one["file"], one["key"]] = one["outcome"]
    return known


def try_all(wanted: list[Job], out: Path) -> dict[Job, str]:
    """Return each mutant's outcome; those in ``out`` are not tried again, the others are added to it."""
    known = read_known(out)
    outcomes: dict[Job, str] = {}
    limits: dict[tuple[str, ...], float] = {}
    for place, job in enumerate(wanted, 1):
        if (job.file, job.key) in known:
            outcomes[job] = known[job.file, job.key]
            continue
        source, *tests = tests_of(job.file)
        if tuple(tests) not in limits:  # how long they take, found once for all files that they hold
            outcome, seconds = in_fork(job.file, None, 600)
            if outcome != "survived":
                raise SystemExit(f"{job.file}: its tests fail without any change; see {OUT.with_suffix('.log')}")
            limits[tuple(tests)] = 20 + 4 * seconds
        tree = mutate((PACKAGE / job.file).read_text(encoding="utf-8"), job.key)
        outcomes[job], seconds = in_fork(job.file, tree, limits[tuple(tests)])
        print(f"{place}/{len(wanted)} {outcomes[job]:<8} {seconds:5.1f} s  {job}", flush=True)
        line = {"file": job.file, "key": job.key, "source": digest([source]), "tests": digest(tests)}
        with out.open("a", encoding="utf-8") as lines_out:
            lines_out.write(json.dumps(line | {"outcome": outcomes[job]}) + "\n")
    return outcomes


def report(outcomes: dict[Job, str]) -> bool:
    """Print the survivors and the shares; return whether enough were killed."""
    harmless: dict[str, dict[str, str]] = json.loads(HARMLESS.read_text(encoding="utf-8"))
    alike = {job for job in outcomes if job.key in harmless.get(job.file, {})}
    survivors = [job for job, outcome in outcomes.items() if outcome == "survived" and job not in alike]
    for job in survivors:
        print(f"survived: {job}")
    for job in alike:
        if outcomes[job] != "survived":
            print(f"killed, though {HARMLESS.name} says that nothing can: {job}")
    packages: dict[str, list[bool]] = {}
    for job in outcomes.keys() - alike:
        packages.setdefault(job.file.split("/")[0], []).append(outcomes[job] != "survived")
    for name, killed in sorted(packages.items()):
        print(f"{name:<12} {sum(killed):>4} of {len(killed):>4} killed, {sum(killed) / len(killed):.1%}")
    changed = len(outcomes) - len(alike)
    share = 1 - len(survivors) / max(1, changed)
    print(f"{len(outcomes)} mutants, {len(alike)} change nothing; {share:.1%} of the others killed")
    return share >= ENOUGH


def show(key: str, only: str) -> None:
    """Print what the mutants with a key change."""
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if path.relative_to(PACKAGE).as_posix().startswith(only) and key in [mutant.key for mutant in mutants(source)]:
            before, after = (ast.unparse(tree).splitlines() for tree in (ast.parse(source), mutate(source, key)))
            print(*difflib.unified_diff(before, after, str(path), str(path), lineterm=""), sep="\n")


def main() -> None:
    """Try the sample and print what survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=300, help="mutants to try")
    parser.add_argument("--only", default="", help="files whose path below channelhash begins with this")
    parser.add_argument("--compiled", action="store_true", help="also files whose functions Numba compiles")
    parser.add_argument("--show", metavar="KEY", help="print what a mutant changes, and try nothing")
    options = parser.parse_args()
    if options.show:
        show(options.show, options.only)
        return
    OUT.parent.mkdir(exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / "build" / "bytecode")
    for name in LIBRARIES.split():
        importlib.import_module(name)
    assert "channelhash" not in sys.modules
    sys.path[:0] = [str(PACKAGE.parent), str(ROOT)]  # tests import each other as ``tests.search.contract``
    os.nice(5)
    if not report(try_all(jobs(options.only, options.sample, options.compiled), OUT)):
        raise SystemExit(f"fewer than {ENOUGH:.0%} killed")


if __name__ == "__main__":
    main()
