"""The files in deploy/ are what docs/milvus.md says; nothing here can start them."""

from pathlib import Path

import pytest
import yaml

from channelhash.search.milvus.address import TOKEN_VARIABLE, parse_address

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_compose_serves_a_collection_of_its_milvus():
    services = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())["services"]
    assert set(services) == {"etcd", "minio", "milvus", "search"}
    for name, service in services.items():
        assert "build" in service or service["healthcheck"]["test"], name
        assert "build" in service or ":latest" not in service["image"], name
        for other in service.get("depends_on", {}):
            assert other in services
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "reached from this machine alone"
    assert services["milvus"]["environment"]["COMMON_SECURITY_AUTHORIZATIONENABLED"] == "true"
    search = services["search"]
    address = parse_address(search["command"][0])
    assert address.uri == "http://milvus:19530"
    assert TOKEN_VARIABLE in search["environment"]
    secrets = [word for word in search["command"] if "token-file" in word]
    assert secrets == [f"--token-file=/run/secrets/{search['secrets'][0]}"]
    dockerfile = DEPLOY / search["build"]["context"] / search["build"]["dockerfile"]
    assert f"ARG {next(iter(search['build']['args']))}=" in dockerfile.read_text()
    assert "milvus" in search["build"]["args"]["EXTRAS"].split(",")
    assert search["read_only"]
    assert search["tmpfs"] == ["/tmp"]


def gigabytes(quantity: str) -> float:
    assert quantity.endswith("Gi")
    return int(quantity.removesuffix("Gi")) * 2**30 / 1e9


def test_helm_values_have_room_for_what_their_comment_computes():
    values = yaml.safe_load((DEPLOY / "helm-values.yaml").read_text())
    nodes, limits = values["queryNode"]["replicas"], values["queryNode"]["resources"]["limits"]
    items = 1e9
    data = items * (2 * 64 / 8 + (16 + 24) + (16 + 2)) / 1e9
    assert data == pytest.approx(74)
    assert nodes * gigabytes(limits["memory"]) > 2 * data / 0.9
    assert (nodes - 1) * gigabytes(limits["memory"]) > data / 0.9
    assert nodes * gigabytes(limits["ephemeral-storage"]) > 2 * 200 * items / 1e9
    assert values["cluster"]["enabled"]
    assert values["streaming"]["enabled"]
    assert not values["pulsarv3"]["enabled"]
    assert values["image"]["all"]["tag"].startswith("v2.6.")
    user = yaml.safe_load(values["extraConfigFiles"]["user.yaml"])
    assert user["common"]["security"]["authorizationEnabled"]
    assert user["queryNode"]["mmap"] == {
        "vectorField": False,
        "vectorIndex": False,
        "scalarField": True,
        "scalarIndex": True,
    }
