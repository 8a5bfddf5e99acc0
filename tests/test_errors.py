"""No error repeats a password, however the address that holds it is written."""

import ast
import pickle
import re
import time
import traceback
from pathlib import Path

import pytest

import channelhash as ch
from channelhash.cli.main import spell_option
from channelhash.errors import InputError, JobError, argument, check_address, hide_secrets
from channelhash.utils.addresses import list_files, place
from refusals import check_refusal
from small_runs import run_command

SECRET = "2secret"


@pytest.mark.parametrize("value", ["a", "\x0e", "like", "\\1 {0} %s <k>"])
def test_each_face_spells_the_names_of_arguments_and_nothing_else(value):
    line = f"{argument('minus_like')} {value}: no such item; see {argument('k')}"
    for error in (InputError(line), pickle.loads(pickle.dumps(InputError(line)))):
        assert str(error) == f"minus_like {value}: no such item; see k"
        assert error.spelled(spell_option) == f"--minus-like {value}: no such item; see -k"
    assert InputError(value).spelled(spell_option) == value


#: An option, as the command line has them.
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z])(?![\w-])")
#: A command that a message names has options of its own.
_COMMAND = re.compile("`[^`]*`|pip install .*")
_ERRORS = {"InputError", "JobError", "RefusedError"}
_LIBRARY = Path(ch.__file__).parent


def _literals(error: ast.Call) -> list[str]:
    """The text of an error's message, without what it inserts."""
    return [_COMMAND.sub("", "".join(_texts(argument))) for argument in error.args]


def _texts(node: ast.AST) -> list[str]:
    return [
        part.value
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def _options_in_errors(source: str) -> list[str]:
    """The options that messages of errors spell; also those in a name that is such a message."""
    tree = ast.parse(source)
    named: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named.setdefault(node.targets[0].id, []).append("".join(_texts(node.value)))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in _ERRORS:
            texts = _literals(node)
            for name in ast.walk(node):
                if isinstance(name, ast.Name):
                    texts += [_COMMAND.sub("", text) for text in named.get(name.id, [])]
            for text in texts:
                found += _OPTION.findall(text)
    return found


@pytest.mark.parametrize(
    "source",
    [
        'raise InputError("--like: no such item")',
        'raise InputError(f"{folder}: choose another --out")',
        'raise JobError(f"give fewer with -k {k}")',
        'line = f"--by {by}: none"\nraise InputError(line)',
    ],
)
def test_an_option_in_an_error_is_found(source):
    assert len(_options_in_errors(source)) == 1


def test_errors_of_the_library_name_arguments_and_no_options_of_the_command_line():
    files = [file for file in _LIBRARY.rglob("*.py") if "cli" not in file.parts]
    assert len(files) > 100
    found = {}
    for file in files:
        options = _options_in_errors(file.read_text(encoding="utf-8"))
        if options:
            found[str(file.relative_to(_LIBRARY))] = options
    assert found == {}


USER_INFO = [
    *(f"postgresql://u:hunter{odd}{SECRET}@127.0.0.1:1/db" for odd in ("", *"#/?[]@:&=;%'\"\\\n ")),
    *(f"postgresql://u:12{odd}{SECRET}@127.0.0.1:1/db" for odd in "#/?["),
    *(
        f"{scheme}u:{SECRET}@h/d"
        for scheme in ("postgres://", "POSTGRESQL://", "postgresql+psycopg://", "postgresql:")
    ),
    *(
        f"{scheme}u:{SECRET}@h/d"
        for scheme in ("postgres:/", "postgresql:///", "jdbc:postgresql://", "mysql://")
    ),
    f"postgresql://u%3A{SECRET}@h/d",
    f"milvus+http://u:hunter#{SECRET}@127.0.0.1:1/c",
    f"milvus+http://{SECRET}@127.0.0.1:1/c",
    f"s3://key:a/b+{SECRET}@bucket/x",
    f"https://u:{SECRET}@host/x.tar",
]
OPTIONS = [
    *(
        f"postgresql://u@127.0.0.1:1/d?{name}={SECRET}"
        for name in ("password", "PASSWORD", "p%61ssword", "sslpassword")
    ),
    f"postgresql://h1:1,h2:2/d?sslmode=require&oauth_client_secret={SECRET}",
    f"milvus+https://127.0.0.1:1/c?Token=root:{SECRET}",
    f"s3://bucket/x?secret_key={SECRET}",
    f"host=h user=u password={SECRET}",
    f"host=h dbname=d password = '{SECRET}'",
]
HARMLESS = [
    "postgresql://postgres:@/postgres?host=/tmp/x&store=a",
    "postgresql://h:5432/d?user=me@tenant",
    "postgresql:///d",
    "postgresql://me@h1:1,h2:2/d?sslkey=/a/b&passfile=/x&keepalives=1",
    "postgresql://[::1]:5432/d",
    "milvus+http://localhost:19530/photos?x=1&nlist=10",
    "s3://bucket/a@2x.png",
    "s3://bucket/a:b@c",
    "https://h:8080/a@2x.png",
    "file:///a:b@c",
    "C:/a:b@c",
    "sftp://me@h:22/a@b",
    "hdfs://nn:8020/a@b",
    "a dog: b/c@d",
]


@pytest.mark.parametrize("address", USER_INFO + OPTIONS)
def test_an_address_with_a_secret_is_refused_and_not_repeated(address):
    with pytest.raises(InputError, match="not here") as refused:
        ch.open_store(address)
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "address", [address for address in USER_INFO + OPTIONS if not set(address) & {" ", "\n"}]
)
def test_no_error_repeats_it(address):
    for error in (InputError, JobError):
        assert SECRET not in str(
            pickle.loads(pickle.dumps(error(f"{address}: no such file ({address!r}); look")))
        )


@pytest.mark.parametrize("address", HARMLESS)
def test_other_addresses_are_taken_and_printed(address):
    check_address(address)
    assert str(InputError(f"{address}: no such file")) == f"{address}: no such file"


def test_what_signs_a_web_address_is_taken_but_not_printed():
    signed = f"https://127.0.0.1:1/a.tar?X-Amz-Date=1&X-Amz-Signature={SECRET}"
    check_address(signed)
    assert (
        hide_secrets(f"{signed}: no")
        == "https://127.0.0.1:1/a.tar?X-Amz-Date=1&X-Amz-Signature=…: no"
    )
    with pytest.raises((InputError, JobError)) as failed:
        list(list_files(signed))
    assert SECRET not in str(failed.value)


def test_files_in_an_object_store_are_not_asked_for_with_a_key():
    for ask in (place, lambda address: list(list_files(address))):
        check_refusal("AWS_SECRET_ACCESS_KEY", ask, f"s3://key:{SECRET}@bucket/x")


@pytest.mark.parametrize(
    "words", [("serve",), ("search",), ("--debug", "index", "info"), ("evaluate", "a", "--no")]
)
def test_no_command_repeats_it(capsys, words):
    assert run_command(*words, f"postgres://u:{SECRET}@h/d") == 2
    out, error = capsys.readouterr()
    assert SECRET not in out + error
    assert "error: postgres://…: " in error.splitlines()[-1]


def test_a_long_word_is_looked_through_at_once():
    began = time.process_time()
    check_address("train.epochs=" + "a" * 70_000)
    assert hide_secrets("a" * 70_000 + "s3://key:secret@bucket") == "a" * 70_000 + "s3://…@bucket"
    assert time.process_time() - began < 2
