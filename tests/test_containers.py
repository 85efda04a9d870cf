# SPDX-License-Identifier: Apache-2.0
"""The manifest of a cluster names what it defines, and what the recipes of images and the command offer."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
MANIFEST = ROOT / "containers/flink.yaml"


def test_the_flink_manifest_fits_the_image_and_itself():
    text = MANIFEST.read_text()
    cluster, server, service = yaml.safe_load_all(text)
    assert [each["kind"] for each in (cluster, server, service)] == ["FlinkDeployment", "Deployment", "Service"]
    containers = {each["name"]: each for each in cluster["spec"]["taskManager"]["podTemplate"]["spec"]["containers"]}
    assert next(iter(containers)) == "flink-main-container"  # the operator's name for its own
    recipe = (ROOT / "containers/worker.Dockerfile").read_text()
    arguments = ", ".join(f'"{each}"' for each in containers["workers"]["args"])
    assert f"CMD [{arguments}]" in recipe
    (job_server,) = server["spec"]["template"]["spec"]["containers"]
    ports = {each["containerPort"] for each in job_server["ports"]}
    assert ports == {each["port"] for each in service["spec"]["ports"]} == {8099, 8098}
    assert {f"--job-port={8099}", f"--artifact-port={8098}"} <= {*job_server["args"]}
    assert f"--flink-master={cluster['metadata']['name']}-rest:8081" in job_server["args"]  # the operator's service
    assert service["spec"]["selector"] == server["spec"]["template"]["metadata"]["labels"]
    flink = re.search(r"flink(1\.\d+)_job_server", job_server["image"])[1]
    assert cluster["spec"]["image"].startswith(f"flink:{flink}-")
    assert cluster["spec"]["flinkVersion"] == f"v{flink.replace('.', '_')}"
    slots = int(cluster["spec"]["flinkConfiguration"]["taskmanager.numberOfTaskSlots"])
    assert "--parallelism=16" in text
    assert cluster["spec"]["taskManager"]["replicas"] * slots > 16
