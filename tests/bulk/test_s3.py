"""``channelhash encode`` and ``evaluate`` with a real S3 server, over connections that break and
wait.
"""

import json
import os
import sys
import threading
import uuid
from pathlib import Path

import fsspec
import pytest

import channelhash as ch
from bulk.made_inputs import (
    feature_model,
    picture_items,
    picture_model,
    write_feature_parquet,
    write_tar,
)
from bulk.s3_server import KEY, SECRET, Proxy, s3_server
from bulk.test_shards import content, encoded, evaluated
from channelhash.bulk import encode_bulk, evaluate_shards
from channelhash.utils.addresses import RemotePath, place
from picture_runs import write_pictures
from refusals import check_refusal
from small_runs import assert_refused


def use_s3(
    patch: pytest.MonkeyPatch, port: int, key: str | None = KEY, secret: str | None = SECRET
) -> None:
    """Let the standard variables name a server on this machine, and nothing else name another
    one.
    """
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()  # which would keep the connections of the test before
    patch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{port}")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        patch.setenv(name, os.devnull)
    for name, value in (("AWS_ACCESS_KEY_ID", key), ("AWS_SECRET_ACCESS_KEY", secret)):
        patch.setenv(name, value) if value else patch.delenv(name, raising=False)


def test_without_the_library_one_line_names_the_extra(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    model = feature_model(tmp_path / "model")
    for data, out in (("s3://bucket/in", tmp_path / "out"), (tmp_path / "in", "s3://bucket/out")):
        write_feature_parquet(tmp_path / "in" / "0.parquet")
        assert_refused(
            capsys,
            "encode",
            model,
            "--data",
            data,
            "--out",
            out,
            says="pip install 'channelhash[s3]'",
        )


def test_codes_at_an_address_are_those_of_a_folder(tmp_path, capsys):
    model = feature_model(tmp_path / "model")
    for part in range(2):
        write_feature_parquet(tmp_path / "in" / f"{part}.parquet", name=f"{part}-")
    out, options = f"memory://{uuid.uuid4().hex}", ("--data", tmp_path / "in", "--shard-items", 8)
    local = encoded(capsys, model, *options, "--out", tmp_path / "out")
    remote = encoded(capsys, model, *options, "--out", out)
    assert (remote, remote_content(out)) == (local | {"out": out}, content(tmp_path / "out"))
    fsspec.filesystem("memory").rm(f"{out}/codes-000003.parquet")
    evaluate = ("evaluate", "--query", tmp_path / "out" / "codes-000000.parquet", "--database", out)
    assert_refused(capsys, *evaluate, says="1 of 10 shards are missing")
    again = encoded(capsys, model, *options, "--out", out)
    assert (again["done_before"], remote_content(out)) == (9, content(tmp_path / "out"))
    other = feature_model(tmp_path / "other", seed=1)
    assert_refused(
        capsys, "encode", other, *options, "--out", out, says="holds a job with another model"
    )


def test_a_job_begun_meanwhile_by_another_process_is_refused(tmp_path, capsys, monkeypatch):
    model = feature_model(tmp_path / "model")
    write_feature_parquet(tmp_path / "in" / "0.parquet")
    out = f"memory://{uuid.uuid4().hex}"
    began = RemotePath.create

    def create_second(path: RemotePath, text: bytes) -> bool:
        assert began(path, b"the manifest of another process")
        return began(path, text)

    monkeypatch.setattr(RemotePath, "create", create_second)
    assert_refused(
        capsys, "encode", model, "--data", tmp_path / "in", "--out", out, says="at the same time"
    )
    assert not list(RemotePath(out).glob("*.parquet"))


def remote_content(out: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in RemotePath(out).glob("*") if file.is_file()}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The port of an S3 server."""
    with s3_server(tmp_path_factory.mktemp("s3") / "data") as port:
        yield port


@pytest.fixture
def proxy(server, monkeypatch):
    """A proxy of the server, which the environment names."""
    with Proxy(server) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        use_s3(monkeypatch, proxy.port)
        yield proxy
        proxy.shutdown()


@pytest.fixture
def bucket(proxy) -> str:
    """The address of a new folder in the server's bucket."""
    fsspec.filesystem("s3").makedirs("bucket", exist_ok=True)
    return f"s3://bucket/{uuid.uuid4().hex}"


@pytest.fixture
def job(proxy, bucket, tmp_path) -> tuple[Path, str, Path]:
    """A model, an address of tar files of pictures, and the folder of their codes from a local
    folder.
    """
    items = list(picture_items(write_pictures(tmp_path / "pictures", 160)).items())
    for number in range(4):
        write_tar(tmp_path / "in" / f"{number}.tar", dict(items[40 * number : 40 * number + 40]))
    model = picture_model(tmp_path / "model")
    encode_bulk(model, str(tmp_path / "in"), tmp_path / "whole")
    fsspec.filesystem("s3").put(f"{tmp_path / 'in'}/", f"{bucket}/shards/", recursive=True)
    return model, f"{bucket}/shards/*.tar", tmp_path / "whole"


@pytest.mark.slow
def test_a_bucket_in_and_out_gives_the_bytes_and_scores_of_a_folder(
    proxy, job, bucket, tmp_path, capsys
):
    model, data, whole = job
    result = encoded(capsys, model, "--data", data, "--out", f"{bucket}/codes")
    assert (result["items"], result["bad"], result["shards"]) == (160, 0, 4)
    assert remote_content(f"{bucket}/codes") == content(whole)
    query = whole / "codes-000000.parquet"
    ch.CodeSet.load(query).save(f"{bucket}/query.parquet")
    here = evaluate_shards(query, whole)
    there = evaluated(capsys, "--query", f"{bucket}/query.parquet", "--database", f"{bucket}/codes")
    assert there["tasks"] == json.loads(json.dumps(here["tasks"]))
    one = evaluated(capsys, "--query", query, "--database", f"{bucket}/codes/codes-000001.parquet")
    assert (
        one["tasks"]
        == evaluated(capsys, "--query", query, "--database", whole / "codes-000001.parquet")[
            "tasks"
        ]
    )
    assert encoded(capsys, model, "--data", data, "--out", f"{bucket}/codes")["done_before"] == 4


@pytest.mark.slow
def test_the_server_lets_one_of_two_jobs_begin(bucket):
    manifest = RemotePath(bucket) / "manifest.json"
    assert manifest.create(b"ours")
    assert not manifest.create(b"another")
    assert manifest.create(b"ours")  # as where the answer to the first request was lost
    assert manifest.read_bytes() == b"ours"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "after"), [("received", 30_000), ("received", 150), ("sent", 3_000)]
)
def test_connections_that_are_cut_are_begun_anew(proxy, job, bucket, capsys, direction, after):
    model, data, whole = job
    proxy.cut(direction, after, times=3)
    encoded(capsys, model, "--data", data, "--out", f"{bucket}/codes")
    assert (proxy.cuts, remote_content(f"{bucket}/codes")) == (3, content(whole))
    query = whole / "codes-000000.parquet"
    proxy.cut("received", 1_500, times=2)
    there = evaluated(capsys, "--query", query, "--database", f"{bucket}/codes")
    assert (proxy.cuts, there["tasks"]) == (
        5,
        json.loads(json.dumps(evaluate_shards(query, whole)["tasks"])),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("direction", "after", "name"), [("received", 30_000, "0.tar"), ("sent", 3_000, "codes")]
)
def test_a_server_that_always_breaks_off_ends_the_job_in_one_line(
    proxy, job, bucket, capsys, direction, after, name
):
    model, data, whole = job
    command = ("encode", model, "--data", data, "--out", f"{bucket}/codes")
    proxy.cut(direction, after)
    assert_refused(capsys, *command, says=name, status=1)
    proxy.heal()
    whole_bytes = content(whole)
    # nothing that is half there
    assert remote_content(f"{bucket}/codes").items() <= whole_bytes.items()
    encoded(capsys, *command[1:])
    assert remote_content(f"{bucket}/codes") == whole_bytes


@pytest.mark.slow
def test_wrong_credentials_buckets_and_servers_are_named(
    proxy, job, bucket, tmp_path, capsys, monkeypatch
):
    model, data, whole = job
    out = ("--out", tmp_path / "o")
    command = ("encode", model, "--data")
    assert_refused(
        capsys, *command, "s3://no-such-bucket/x", *out, says="s3://no-such-bucket/x: no such"
    )
    says = "s3://no-such-bucket/x/job/manifest.json: "
    assert_refused(capsys, *command, data, "--out", "s3://no-such-bucket/x", says=says)
    for key, secret in ((KEY, "wrong"), ("nobody", SECRET), (None, None)):
        use_s3(monkeypatch, proxy.port, key, secret)
        assert_refused(capsys, *command, data, *out, says=f"{data}: no access")
        says = f"{bucket}/c/job/manifest.json: no access"
        assert_refused(capsys, *command, tmp_path / "in", "--out", f"{bucket}/c", says=says)
        query = ("evaluate", "--query", whole / "codes-000000.parquet")
        assert_refused(capsys, *query, "--database", f"{bucket}/c", says=f"{bucket}/c: no access")
    use_s3(monkeypatch, 1)
    assert_refused(capsys, *command, data, *out, says=f"{data}: the server failed", status=1)
    for name, value in (
        ("AWS_ENDPOINT_URL_S3", f"127.0.0.1:{proxy.port}"),
        ("AWS_PROFILE", "nobody"),
    ):
        use_s3(monkeypatch, proxy.port)
        monkeypatch.setenv(name, value)
        assert_refused(capsys, *command, data, *out, says=f"{data}: cannot be opened (")


@pytest.mark.slow
def test_files_that_came_since_an_earlier_job_of_the_process_are_seen(proxy, job, bucket):
    model, data, _ = job
    encode_bulk(model, data, place(f"{bucket}/codes"))
    system = fsspec.filesystem("s3", skip_instance_cache=True)  # as another process would
    system.copy(sorted(system.glob(data))[0], data.replace("*", "later"))
    check_refusal("holds a job with another", encode_bulk, model, data, place(f"{bucket}/codes"))


def test_a_version_of_a_file_is_that_version_wherever_it_is_read(proxy, bucket, tmp_path):
    system, model = fsspec.filesystem("s3"), feature_model(tmp_path / "model")
    name = bucket.rpartition("/")[2]
    system.mkdir(name)
    system.call_s3(
        "put_bucket_versioning", Bucket=name, VersioningConfiguration={"Status": "Enabled"}
    )
    versions = {}
    for n in (8, 16):
        write_feature_parquet(tmp_path / f"{n}.parquet", n)
        body = (tmp_path / f"{n}.parquet").read_bytes()
        stored = system.call_s3("put_object", Bucket=name, Key="x.parquet", Body=body)
        versions[n] = f"s3://{name}/x.parquet?versionId={stored['VersionId']}"
    for n, address in {**versions, 16: f"s3://{name}/x.parquet"}.items():
        done = encode_bulk(model, address, tmp_path / f"codes-{n}")
        assert (done["items"], done["bad"]) == (n, 0)
