"""The image of `channelhash serve`: its file is as docs/how-to/docker.md says; that beside Milvus
too.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request

import httpx
import numpy as np
import pytest
import yaml
from tests.search.servers import postgres_address

import channelhash as ch
from channelhash.search.milvus import _TOKEN_VARIABLE, _parse_address
from pages import ROOT
from serve.served import small_model, small_store, started
from small_runs import run_command
from utils.test_watch import until

FILE = ROOT / "deploy" / "docker" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the file in order: name and words."""
    lines = [
        line
        for line in FILE.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [
        (name, words) for name, _, words in (line.partition(" ") for line in whole.splitlines())
    ]


def last(name: str) -> str:
    return [words for found, words in instructions() if found == name][-1]


def test_the_image_is_pinned_small_and_without_rights():
    stages = [words.split() for name, words in instructions() if name == "FROM"]
    assert [stage[0] for stage in stages] == ["python:3.13-slim-bookworm"] * 2
    assert stages[0][1:] == ["AS", "build"]
    final = instructions()[[name for name, _ in instructions()].index("FROM", 1) :]
    assert not any(name == "COPY" and "--from=build" not in words for name, words in final)
    assert "pip" not in " ".join(words for _, words in final)
    user = last("USER")
    assert int(user) > 0
    assert f"--uid {user}" in FILE.read_text()
    assert [name for name, _ in final].index("USER") > max(
        i for i, (name, _) in enumerate(final) if name == "RUN"
    )
    assert last("STOPSIGNAL") == "SIGTERM"
    assert last("VOLUME") == "/stores"


def test_the_image_says_how_it_is_asked_and_started_without_a_shell():
    assert json.loads(last("ENTRYPOINT"))[:2] == ["channelhash", "serve"]
    assert json.loads(last("CMD"))[0].startswith(last("VOLUME"))
    options, _, command = last("HEALTHCHECK").partition("CMD ")
    assert {"--interval=30s", "--start-period=60s"} <= set(options.split())
    port = last("EXPOSE")
    assert f"--port={port}" in json.loads(last("ENTRYPOINT"))
    assert f":{port}/health" in json.loads(command)[2]


def test_what_is_copied_is_there_and_the_rest_is_not_sent():
    ignored = FILE.with_name("Dockerfile.dockerignore").read_text().split()
    words = [
        word
        for name, text in instructions()
        if name == "COPY" and "--from" not in text
        for word in text.split()
    ]
    sent = {word for word in words if (ROOT / word).exists() and word not in ("./", ".")}
    assert sent == {line[1:] for line in ignored if line.startswith("!")}
    assert ignored[0] == "*"
    extras = (
        next(text for name, text in instructions() if name == "ARG").partition("=")[2].split(",")
    )
    assert all(f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text() for extra in extras)


def test_ci_builds_and_starts_it_on_a_read_only_root():
    jobs = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    )["jobs"]
    steps = "\n".join(step.get("run", "") for step in jobs["image"]["steps"])
    assert "docker build --file deploy/docker/Dockerfile" in steps
    assert "--read-only --tmpfs /tmp" in steps
    named = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    matrices = [job["strategy"]["matrix"] for job in jobs.values() if "strategy" in job]
    pythons = {python for matrix in matrices for python in matrix["python"]}
    assert pythons == set(re.findall(r"Python :: (3\.\d+)", named))


@pytest.mark.skipif(os.name != "posix", reason="the image is one of Linux")
def test_its_commands_serve_a_store_where_only_the_store_and_tmp_can_be_written(tmp_path):
    """As the image does it, but for the port: a home that is not there, the source read-only, the
    cache under /tmp.
    """
    store = ch.open_store(tmp_path / "photos.store", 64)
    store.add(["a"], np.zeros((1, 8), np.uint8))
    store.close()
    entry, (_, _, check) = (
        json.loads(last("ENTRYPOINT")),
        json.loads(last("HEALTHCHECK").partition("CMD ")[2]),
    )
    variables = dict(word.split("=", 1) for word in shlex.split(last("ENV")))
    environment = {
        name: os.environ[name] for name in ("PATH", "LANG", "NUMBA_CACHE_DIR") if name in os.environ
    } | {
        "HOME": "/nonexistent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CHANNELHASH_CACHE": variables["CHANNELHASH_CACHE"].replace("/tmp", str(tmp_path / "tmp")),
    }
    words = [
        sys.executable,
        "-m",
        "channelhash",
        entry[1],
        "--host=127.0.0.1",
        "--port=0",
        tmp_path / "photos.store",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd="/", env=environment, **pipes)
    try:
        address = next(
            match[0] for line in process.stdout if (match := re.search(r"http://[\d.:]+/", line))
        )
        asked = check.replace("http://localhost:8080/", address)
        assert asked != check
        assert subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0
        with urllib.request.urlopen(f"{address}health") as answer:
            assert json.load(answer) == {"status": "ok", "items": 1}
    finally:
        process.terminate()
        rest, errors = process.communicate(timeout=60)
    assert "Stopped." in rest, errors
    assert process.returncode in (143, -15)


def compose(kind: str) -> dict[str, dict]:
    """The services of a file: ``-folder``, ``-postgres``, or those of Milvus without a word."""
    return yaml.safe_load((ROOT / "deploy" / f"docker-compose{kind}.yaml").read_text())["services"]


@pytest.mark.parametrize(("kind", "others"), [
    ("", {"etcd", "minio", "milvus"}), ("-folder", set()), ("-postgres", {"postgres"}),
])  # fmt: skip
def test_compose_starts_what_is_pinned_and_reached_from_this_machine_alone(kind, others):
    services = compose(kind)
    assert set(services) == {"search", *others}
    for name, service in services.items():
        assert "build" in service or service["healthcheck"]["test"], name
        assert "build" in service or ":latest" not in service["image"], name
        assert set(service.get("depends_on", {})) <= others
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
    search = services["search"]
    dockerfile = ROOT / "deploy" / search["build"]["context"] / search["build"]["dockerfile"]
    assert all(
        f"ARG {argument}=" in dockerfile.read_text() for argument in search["build"].get("args", {})
    )
    assert (search["read_only"], search["tmpfs"]) == (True, ["/tmp"])


def test_compose_serves_a_collection_of_its_milvus():
    services = compose("")
    assert services["milvus"]["environment"]["COMMON_SECURITY_AUTHORIZATIONENABLED"] == "true"
    search = services["search"]
    assert _parse_address(search["command"][0])[0] == "http://milvus:19530"
    assert _TOKEN_VARIABLE in search["environment"]
    secrets = [word for word in search["command"] if "token-file" in word]
    assert secrets == [f"--token-file=/run/secrets/{search['secrets'][0]}"]
    assert "milvus" in search["build"]["args"]["EXTRAS"].split(",")


@pytest.mark.skipif(os.name != "posix", reason="the image is one of Linux")
@pytest.mark.parametrize("kind", ["-folder", "-postgres"])
def test_the_commands_of_compose_serve_a_store(kind, tmp_path):
    small_store(tmp_path, model := small_model(tmp_path)).close()
    model.save_pretrained(tmp_path / "store" / "model")
    places = {
        "/stores/photos.store": tmp_path / "store",
        "--model=/model": f"--model={tmp_path / 'store'}",
    }
    if kind == "-postgres":
        places["postgresql://postgres@postgres/postgres"] = postgres_address(tmp_path)
        assert run_command("index", "push", tmp_path / "store", postgres_address(tmp_path)) == 0
    with started(*[places[word] for word in compose(kind)["search"]["command"]]) as (_, address):
        until(lambda: httpx.get(f"{address}ready").status_code == 200)
        answer = httpx.post(f"{address}search", json={"text": "a red picture"})
        assert answer.json()["results"]
