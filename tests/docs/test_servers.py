"""The files that start servers in containers are YAML, agree with each other, and have what their page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "servers"
PAGE = (ROOT / "docs" / "how-to" / "servers.md").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((FILES / "compose.yaml").read_text())
KUBERNETES: dict[str, dict[str, Any]] = {
    each["kind"]: each for each in yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
}
URL = re.compile(r"zk://[^\s\"`?]+")
# What the image makes of its variables; a server's id is each one's own.
SETTINGS = {
    "ZOO_TICK_TIME": "tickTime",
    "ZOO_MAX_CLIENT_CNXNS": "maxClientCnxns",
    "ZOO_AUTOPURGE_PURGEINTERVAL": "autopurge.purgeInterval",
    "ZOO_4LW_COMMANDS_WHITELIST": "4lw.commands.whitelist",
}


def container() -> dict[str, Any]:
    """Return the container of the StatefulSet."""
    [found] = KUBERNETES["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environments() -> list[dict[str, str]]:
    """Return the variables of each server of both files."""
    of_compose = [service["environment"] for service in COMPOSE["services"].values()]
    return [*of_compose, {each["name"]: each["value"] for each in container()["env"]}]


def hosts_of(servers: str) -> list[str]:
    """Return the hosts of `ZOO_SERVERS`, as the quorum's servers know each other."""
    return re.findall(r"server\.\d+=([\w.-]+):2888:3888;2181", servers)


def test_three_servers_with_ids_and_health_checks() -> None:
    """Each server has its own id and data, knows all three, and is healthy once it is in a quorum."""
    services = COMPOSE["services"]
    assert [each["environment"]["ZOO_MY_ID"] for each in services.values()] == ["1", "2", "3"]
    assert all("grep -q Mode" in each["healthcheck"]["test"][1] for each in services.values())
    volumes = [volume.partition(":")[0] for each in services.values() for volume in each["volumes"]]
    assert sorted(volumes) == sorted(COMPOSE["volumes"])
    assert len(set(volumes)) == 6
    assert all(hosts_of(each["environment"]["ZOO_SERVERS"]) == [*services] for each in services.values())
    spec = KUBERNETES["StatefulSet"]["spec"]
    name, service = KUBERNETES["StatefulSet"]["metadata"]["name"], KUBERNETES["Service"]["metadata"]["name"]
    assert spec["serviceName"] == service
    assert hosts_of(environments()[-1]["ZOO_SERVERS"]) == [f"{name}-{n}.{service}" for n in range(spec["replicas"])]
    # The command counts the pods from 1 on.
    name_it, _, _ = container()["args"][0].partition(" exec ")
    named = subprocess.run(
        ["bash", "-c", f"{name_it} env"], env={"HOSTNAME": f"{name}-2"}, capture_output=True, text=True, check=True
    )
    assert "ZOO_MY_ID=3" in named.stdout.splitlines()
    assert "grep -q Mode" in container()["readinessProbe"]["exec"]["command"][-1]
    labels = spec["template"]["metadata"]["labels"]
    assert KUBERNETES["Service"]["spec"]["selector"] == labels == spec["selector"]["matchLabels"]
    assert KUBERNETES["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_the_urls_name_all_servers() -> None:
    """The URLs of the page and of the files' first lines name the servers that the files start."""
    ports = [service["ports"][0].rpartition(":2181")[0] for service in COMPOSE["services"].values()]
    expected = {",".join(ports), ",".join(hosts_of(environments()[-1]["ZOO_SERVERS"]))}
    texts = [PAGE, *(file.read_text() for file in FILES.iterdir())]
    urls = {url.removeprefix("zk://").partition("/")[0] for text in texts for url in URL.findall(text)}
    assert urls == expected


def test_the_page_has_the_settings() -> None:
    """Both files have the values of the page's table, and the version that the tests run on."""
    table = dict(re.findall(r"^\| `([\w.]+)` \| `?([\w,]+)", PAGE, re.MULTILINE))
    for environment in environments():
        for variable, setting in SETTINGS.items():
            wanted = table[setting].rstrip(",")
            if wanted.isdigit():
                assert environment[variable] == wanted
            elif setting == "4lw.commands.whitelist":
                assert {*wanted.split(",")} <= {*environment[variable].split(",")}
    images = {container()["image"], *(service["image"] for service in COMPOSE["services"].values())}
    assert images == {"zookeeper:3.9.5"}
    assert "3.9.5" in PAGE
