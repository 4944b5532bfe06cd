"""The check of the AWS account's template, with one thing wrong."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.rules.account import nodes_of_others
from tests.unit.cluster_files.changing import ROOT, Change, changed, lines

pytestmark = pytest.mark.second  # test_check checks the files as they are in the first tier


def resource(name: str, **values: Any) -> Change:
    return lambda document: document["Resources"][name]["Properties"].update(values)


def head_policy(document: dict[str, Any]) -> dict[str, Any]:
    return document["Resources"]["HeadRole"]["Properties"]["Policies"][0]["PolicyDocument"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (resource("SecurityGroup", SecurityGroupIngres=[]), "'SecurityGroupIngres' was unexpected"),
        (lambda document: document["Resources"]["Bucket"].update(Type="AWS::S3::Buckett"), "AWS::S3::Buckett"),
        (resource("AmongNodes", GroupId={"Fn::GetAtt": ["Nothing", "GroupId"]}), "'Nothing' is not one of"),
        (
            lambda document: document.update(AWSTemplateFormatVersion="2011-01-01"),
            "'2011-01-01' is not one of ['2010-09-09']",
        ),
        (
            lambda document: head_policy(document)["Statement"][1].pop("Condition"),
            "Resources.HeadRole.Properties.Policies.0.PolicyDocument.Statement.1: ec2:CreateTags on any machine;",
        ),
        (
            resource("Bucket", PublicAccessBlockConfiguration={"BlockPublicAcls": True}),
            "the bucket may become public; all four true",
        ),
        (
            resource(
                "SecurityGroup",
                SecurityGroupIngress=[
                    {"IpProtocol": "tcp", "FromPort": 8265, "ToPort": 8265, "CidrIp": {"Ref": "SshFrom"}}
                ],
            ),
            "ports 8265 to 8265 are open to an address; 22 alone, and a tunnel to the others",
        ),
    ],
)
def test_one_wrong_thing_in_the_account_is_named(
    change: Change, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line, *_) = lines(changed("aws-account.yaml", change, tmp_path), capsys)
    assert words in line


TAG = "ec2:CreateTags on any machine; a Condition on ec2:CreateAction or aws:ResourceTag/ray-cluster-name"


def head_role(index: int, **values: Any) -> dict[str, Any]:
    """Return the head's role with one statement of its policy changed; None takes a field out."""
    role = yaml.safe_load((ROOT / "cluster/aws-account.yaml").read_text())["Resources"]["HeadRole"]["Properties"]
    statements = role["Policies"][0]["PolicyDocument"]["Statement"]
    changed_one = statements[index] | values
    statements[index] = {key: value for key, value in changed_one.items() if value is not None}
    return role


@pytest.mark.parametrize(
    ("index", "values", "messages"),
    [
        (0, {}, []),
        (0, {"Action": ["ec2:RunInstances", "ec2:CreateTags"]}, [TAG]),
        (0, {"Action": "ec2:createt*"}, [TAG]),
        (1, {"Condition": None}, [TAG]),
        (1, {"Condition": {"StringNotEquals": {"ec2:CreateAction": "RunInstances"}}}, [TAG]),
        (
            2,
            {"Condition": {"StringEquals": {"ec2:CreateAction": "RunInstances"}}},
            [
                f"ec2:{action} on any machine; a Condition on aws:ResourceTag/ray-cluster-name"
                for action in ("TerminateInstances", "StopInstances", "StartInstances")
            ],
        ),
    ],
)
def test_a_role_that_reaches_machines_of_others_is_refused(
    index: int, values: dict[str, Any], messages: list[str]
) -> None:
    field = f"Policies.0.PolicyDocument.Statement.{index}"
    assert list(nodes_of_others(head_role(index, **values))) == [(field, message) for message in messages]
