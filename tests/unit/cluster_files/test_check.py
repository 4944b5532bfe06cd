"""cluster/check.py on the files as they are shipped, and on what is no file of a cluster."""

from pathlib import Path

import pytest

from cluster import check
from cluster.rules import kustomize
from tests.unit.cluster_files.changing import ROOT, lines


@pytest.mark.parametrize("alone", ["", "; each file alone: kubectl, which puts them together, is not installed"])
def test_the_shipped_files_are_fine_and_say_what_is_to_be_filled_in(
    alone: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if alone:
        monkeypatch.setenv("PATH", "/nowhere")
    elif not kustomize.command():
        pytest.skip("needs kubectl")
    monkeypatch.chdir(ROOT)
    assert check.main([]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "cluster/aws.yaml: fine; FILL_IN left: 1",
        "cluster/gcp.yaml: fine; FILL_IN left: 2",
        "cluster/aws-account.yaml: fine",
        "cluster/sky.yaml: fine; FILL_IN left: 2",
        f"cluster/kuberay/cluster: fine; FILL_IN left: 1{alone}",
        f"cluster/kuberay/job: fine; FILL_IN left: 3{alone}",
        f"cluster/kuberay/service: fine; FILL_IN left: 2{alone}",
        "cluster/Dockerfile: fine",
    ]


def test_every_file_of_the_folder_that_a_cluster_reads_is_checked() -> None:
    folder = ROOT / "cluster"
    found = {path for pattern in ("*.yaml", "kuberay/**/*.yaml", "Dockerfile") for path in folder.glob(pattern)}
    read = {file.resolve() for name in check.FILES for file in check.parts(folder / name)}
    settings = {file.resolve() for file in folder.glob("kuberay/*/kustomization.yaml")}
    assert found == read | settings | {folder / "job.yaml"}


GROUP = """AWSTemplateFormatVersion: "2010-09-09"
Resources:
  G:
    Type: AWS::EC2::SecurityGroup
    Properties: {GroupDescription: x, SecurityGroupIngress: [{IpProtocol: tcp, FromPort: 22, ToPort: 22, CidrIpv6: '::/0'}]}
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "is no YAML: "),
        ("", "must hold one mapping or more"),
        ("a: 1", check.UNKNOWN),
        ("provider: {type: moon}", "is refused by Ray: NotImplementedError: "),
        (
            GROUP,
            "Resources.G.Properties.SecurityGroupIngress.0.CidrIpv6: ::/0 opens the nodes to the world; "
            "name your own address, as 203.0.113.7/32",
        ),
        (
            "{apiVersion: v1, kind: Secret, metadata: {nam: x}}",
            "metadata: Additional properties are not allowed ('nam' was unexpected)",
        ),
    ],
)
def test_what_is_no_cluster_file_is_one_line(
    text: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some.yaml").write_text(text)
    (found,) = lines(tmp_path / "some.yaml", capsys)
    assert found.startswith(line)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(tmp_path / "none.yaml", capsys) == ["cannot be read: No such file or directory"]
