"""Systems other than Linux: what only POSIX has stays in few files, and the core works where it is missing."""

import ast
import ctypes
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from channelhash.utils import files
from channelhash.utils.files import cache_folder
from channelhash.utils.memmap_cache import reserved_memmap
from pages import ROOT

PACKAGE = ROOT / "src" / "channelhash"
#: What Windows lacks -> the files that may name it, each with a way without.
POSIX_MODULES = {
    "fcntl": {"utils/file_locks.py"},
    "resource": {"utils/memory.py", "utils/mat_files.py", "serve/connections.py"},
    **dict.fromkeys(("grp", "pwd", "termios", "tty", "pty", "syslog"), frozenset()),
}
POSIX_CALLS = {
    "os.posix_fallocate": {"utils/memmap_cache.py"},
    "os.register_at_fork": {"utils/forks.py"},
    "os.O_NOFOLLOW": {"utils/files.py"},
    "os.pread": {"utils/held_file.py"},
    "os.sched_getaffinity": {"utils/environment.py"},
    "signal.pthread_sigmask": {"utils/processes.py"},
    **dict.fromkeys(
        [
            f"os.{name}"
            for name in ("fork", "pwrite", "O_CLOEXEC", "O_NONBLOCK", "getuid", "geteuid", "killpg", "setsid")
        ]
        + [f"os.{name}" for name in ("mkfifo", "statvfs", "uname", "fchmod", "chown", "nice", "wait", "getloadavg")]
        + [f"signal.{name}" for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM", "alarm", "setitimer", "pause")],
        frozenset(),
    ),
}
SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}


def posix_names(source: str) -> set[str]:
    """Modules and calls of POSIX that a source names."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return found & {*POSIX_MODULES, *POSIX_CALLS}


def opened_without_encoding(source: str) -> list[int]:
    """Lines of calls that read or write text in the encoding of the machine."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        owned = isinstance(node.func, ast.Attribute)
        words = [
            part.value for argument in node.args[1:] for part in ast.walk(argument) if isinstance(part, ast.Constant)
        ]
        binary = any("b" in str(word) for word in words)
        if (owned and name in ("read_text", "write_text")) or (not owned and name == "open" and not binary):
            lines.append(node.lineno)
    return lines


def test_what_only_posix_has_stays_in_few_files():
    allowed = POSIX_MODULES | POSIX_CALLS
    named = {name: posix_names(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}
    assert not [(name, word) for name, words in named.items() for word in words if name not in allowed[word]]
    unused = [(word, name) for word, names in allowed.items() for name in names if word not in named[name]]
    assert not unused


def test_text_is_read_and_written_as_utf8_on_every_machine():
    texts = {name: path.read_text(encoding="utf-8") for name, path in SOURCES.items()}
    assert not {name: lines for name, text in texts.items() if (lines := opened_without_encoding(text))}


def test_the_checks_find_what_they_look_for():
    source = "import fcntl\nfrom os import fork\nos.pread(1, 2, 3)\nopen(p)\np.read_text()\nopen(p, 'rb')\n"
    assert posix_names(source) == {"fcntl", "os.fork", "os.pread"}
    assert opened_without_encoding(source) == [4, 5]


def run_deprived(folder, script, *words):
    """What a script prints in a process without the calls of POSIX."""
    begin = "from without_posix import deprive; deprive()\n"
    paths = [str(ROOT / "src"), str(ROOT / "tests" / "utils"), str(ROOT / "tests"), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(script), *map(str, words)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "CHANNELHASH_CACHE": str(folder / "cache")},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_every_module_is_imported_without_posix(tmp_path):
    script = """
    import importlib, pkgutil
    import channelhash
    from channelhash.utils.optional_imports import EXTRAS

    optional = {name for names in EXTRAS.values() for name in names} | {"onnxruntime"}

    class Blocked:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in optional - set(EXTRAS["serve"]):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys_path = __import__("sys").meta_path
    sys_path.insert(0, Blocked())
    imported = skipped = 0
    for module in pkgutil.walk_packages(channelhash.__path__, "channelhash.", onerror=lambda name: None):
        if module.name == "channelhash.__main__":
            continue
        try:
            importlib.import_module(module.name)
            imported += 1
        except ModuleNotFoundError as error:
            assert error.name.partition(".")[0] in optional, (module.name, error)
            skipped += 1
    print(imported, skipped)
    """
    imported, _ = map(int, run_deprived(tmp_path, script))
    assert imported > 200


def test_stores_are_written_searched_updated_and_held_without_posix(tmp_path):
    script = """
    import numpy as np
    from pathlib import Path
    from contextlib import closing
    import channelhash as ch
    from channelhash.errors import InputError
    from channelhash.search.local.backup import backup_store
    from channelhash.search.local.check import check_store
    from channelhash.search.local.repair import repair_store

    codes = np.random.default_rng(0).integers(0, 256, (20_000, 8), np.uint8)
    ids = [f"item {i}" for i in range(len(codes))]
    with closing(ch.open_store("a.store", 64)) as store:
        store.add(ids, codes)
        store.make_snapshot()
        print(store.search(codes[7:8], k=1).ids[0][0].replace(" ", "-"))
        store.delete(ids[:5])
        store.add(["new"], codes[:1])
        print(len(store))
        try:
            repair_store(Path("a.store"))
        except InputError as error:
            print("open" if "is open in another process" in str(error) else error)
    print(len(check_store(Path("a.store"))))
    backup_store(Path("a.store"), Path("b.store"))
    print(len(check_store(Path("b.store"))))
    Path("b.store", "store.json").write_text("{}")
    print(repair_store(Path("b.store")).n_items)
    """
    assert run_deprived(tmp_path, script) == ["item-7", "19996", "open", "0", "0", "19996"]
    assert not [path for path in tmp_path.rglob("*") if ".tmp" in path.name]


def test_files_of_features_and_locks_without_posix(tmp_path):
    script = """
    import os, sys
    import numpy as np
    from pathlib import Path
    from channelhash.utils import files, memory
    from channelhash.utils.file_locks import lock_alone, lock_shared, unlock
    from channelhash.utils.memmap_cache import row_file
    from channelhash.utils.processes import interrupts_held

    def compute(first):
        yield from [np.zeros((2, 3)), np.ones((1, 3))][first:]

    print(row_file(Path("rows"), {"weights": "abc"}, [2, 1], 3, "float32", compute).block(1).sum())

    ours, theirs = (open("lock", "ab") for _ in range(2))
    lock_shared(ours.fileno()), lock_shared(theirs.fileno()), lock_shared(ours.fileno())
    for wait in (False, False):
        try:
            lock_alone(ours.fileno(), wait=False)
            print("alone")
        except BlockingIOError:
            print("shared")
        unlock(theirs.fileno())

    living, dead = (Path(f".a.txt.{digit * 32}.tmp") for digit in "ab")
    with files.atomic_path(Path("a.txt")) as temporary, files.temporary_folder(Path("b")) as folder:
        temporary.write_text("a"), (folder / "c").write_text("c"), dead.write_text("left by a killed process")
        Path(f"{living}.lock").touch()
        files.sweep(Path())
        print(len(list(Path().glob(".*.tmp"))), len(list(Path().glob(".*.tmp.lock"))))
        files.move_folder(folder, Path("b"))
    print(Path("a.txt").read_text(), Path("b", "c").read_text(), len(list(Path().glob(".*"))))
    with interrupts_held():
        print(memory.peak_bytes())
    """
    printed = run_deprived(tmp_path, script)
    assert printed == ["3.0", "shared", "alone", "2", "2", "a", "c", "0", "None"]


def test_space_is_written_where_it_cannot_be_reserved(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    path = tmp_path / "rows.npy"
    rows = reserved_memmap(path, (1000, 700), "float32")
    assert rows.shape == (1000, 700)
    assert not rows.any()
    assert path.stat().st_blocks * 512 >= rows.nbytes


def test_a_file_that_windows_holds_open_is_replaced_when_it_is_closed(tmp_path, monkeypatch):
    refusals = iter([PermissionError, PermissionError])
    replace = os.replace

    def replace_later(source, target):
        for refusal in refusals:
            raise refusal(13, "Permission denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_later)
    monkeypatch.setattr(files, "POSIX", False)
    files.write_text(tmp_path / "a.txt", "new")
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(
    ("system", "variables", "expected"),
    [
        ("linux", {"CHANNELHASH_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "/c"),
        ("win32", {"CHANNELHASH_CACHE": "/c"}, "/c"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/channelhash"),
        ("linux", {}, "/home/me/.cache/channelhash"),
        ("darwin", {}, "/home/me/Library/Caches/channelhash"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/channelhash/Cache"),
        ("win32", {}, "/home/me/AppData/Local/channelhash/Cache"),
    ],
)
def test_the_cache_lies_where_the_system_keeps_caches(system, variables, expected, monkeypatch):
    for name in ("CHANNELHASH_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    assert cache_folder() == Path(expected)


def test_threads_search_at_once_on_numbas_own_pool(tmp_path):
    """Which is all that Numba has on macOS without OpenMP; it ends a process in which two loops run at once."""
    script = """
    import threading, numpy as np
    from numba import prange, threading_layer
    from channelhash.utils.parallel_loops import parallel_loop

    @parallel_loop()
    def count(out):
        for i in prange(len(out)):
            for j in range(10_000):
                out[i] += j % 7

    outs = [np.zeros(1000, np.int64) for _ in range(4)]
    threads = [threading.Thread(target=lambda out=out: [count(out) for _ in range(20)]) for out in outs]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    print(threading_layer(), len({int(out.sum()) for out in outs}))
    """
    (tmp_path / "loops.py").write_text(textwrap.dedent(script), encoding="utf-8")
    settings = {"NUMBA_THREADING_LAYER": "workqueue", "NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "loops.py"],
        cwd=tmp_path,
        env=os.environ | settings | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "workqueue 1\n", done.stderr


@pytest.mark.parametrize("target", ["aarch64-unknown-linux-gnu", "arm64-apple-macosx", "x86_64-pc-windows-msvc"])
def test_bits_are_counted_by_what_every_processor_has(target):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    function = "define i64 @count(i64 %word) { %n = call i64 @llvm.ctpop.i64(i64 %word)\nret i64 %n }"
    module = llvm.parse_assembly(f"declare i64 @llvm.ctpop.i64(i64)\n{function}")
    module.triple = target
    assembly = llvm.Target.from_triple(target).create_target_machine().emit_assembly(module)
    assert "ctpop" not in assembly  # instructions, no call of a function that is not there
    assert ("cnt" in assembly) == ("64-" in target and "x86" not in target)


@pytest.mark.parametrize("settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}])
def test_signs_that_a_terminal_lacks_are_written_as_numbers(settings, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "channelhash", "list", "losses"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "0"} | settings,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"\\x" in done.stdout
    assert not done.stderr


def test_a_structure_of_windows_is_as_its_manual_says():
    from channelhash.utils.file_locks import _Overlapped

    offsets = {name: getattr(_Overlapped, name).offset for name in ("Offset", "OffsetHigh", "hEvent")}
    assert (ctypes.sizeof(_Overlapped), offsets) == (32, {"Offset": 16, "OffsetHigh": 20, "hEvent": 24})
    assert np.dtype(np.intp).itemsize == 8
