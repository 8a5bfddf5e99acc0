"""The files in deploy/ are what docs/how-to/milvus.md says; nothing here can start them."""

from pathlib import Path

import yaml

from channelhash.search.milvus.collection import TOKEN_VARIABLE, parse_address

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
