"""Rules for the CloudFormation template of an AWS account: closed buckets and groups, and roles that reach only their
own nodes.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from cluster.rules.problems import Problem

BLOCKS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
OWN_NODES = "aws:resourcetag/ray-cluster-name"
ON_NODES = {  # action: the condition keys, in lower case, one of which keeps it to nodes of Ray clusters
    "ec2:CreateTags": (OWN_NODES, "ec2:createaction"),
    "ec2:TerminateInstances": (OWN_NODES,),
    "ec2:StopInstances": (OWN_NODES,),
    "ec2:StartInstances": (OWN_NODES,),
}
NARROWING = ("StringEquals", "StringLike")


def account(text: str, document: dict) -> Iterator[Problem]:
    """Yield problems found by CloudFormation's own schemas (cfn-lint), then by our rules."""
    from cfnlint.api import lint
    from cfnlint.core import get_rules

    refused = lint(text, get_rules([], [], []), ["us-east-1"])
    for match in refused:
        yield f"line {match.linenumber}", match.message
    if refused:
        return
    for name, resource in document["Resources"].items():
        properties = resource.get("Properties", {})
        for rules in RULES.get(resource["Type"], ()):
            for field, message in rules(properties):
                yield f"Resources.{name}.Properties" + (f".{field}" if field else ""), message


def public_bucket(properties: dict) -> Iterator[Problem]:
    blocked = properties.get("PublicAccessBlockConfiguration", {})
    if not all(blocked.get(key) is True for key in BLOCKS):
        yield "PublicAccessBlockConfiguration", "the bucket may become public; all four true"


def open_group(properties: dict) -> Iterator[Problem]:
    for rule in properties.get("SecurityGroupIngress", []):
        yield from open_port(rule)


def open_port(rule: dict) -> Iterator[Problem]:
    first, last = rule.get("FromPort", "all"), rule.get("ToPort", "all")
    if "SourceSecurityGroupId" not in rule and (first, last) != (22, 22):
        yield "", f"ports {first} to {last} are open to an address; 22 alone, and a tunnel to the others"


def nodes_of_others(properties: dict) -> Iterator[Problem]:
    """Yield actions that a role may take on any of the account's machines: a role that may tag one can then end it."""
    documents = {"PolicyDocument": properties.get("PolicyDocument", {})}
    for index, policy in enumerate(properties.get("Policies", [])):
        documents[f"Policies.{index}.PolicyDocument"] = policy["PolicyDocument"]
    for field, document in documents.items():
        for index, statement in enumerate(listed(document.get("Statement", []))):
            if statement["Effect"] != "Allow":
                continue
            given = {key.lower() for name in NARROWING for key in statement.get("Condition", {}).get(name, {})}
            for action, keys in ON_NODES.items():
                if allows(statement, action) and not given.intersection(keys):
                    condition = "ec2:CreateAction or " if len(keys) > 1 else ""
                    message = f"{action} on any machine; a Condition on {condition}aws:ResourceTag/ray-cluster-name"
                    yield f"{field}.Statement.{index}", message


def allows(statement: dict, action: str) -> bool:
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in listed(statement.get("Action", [])))


def listed(value: list | dict | str) -> list:
    return value if isinstance(value, list) else [value]


RULES = {
    "AWS::S3::Bucket": (public_bucket,),
    "AWS::EC2::SecurityGroup": (open_group,),
    "AWS::EC2::SecurityGroupIngress": (open_port,),
    "AWS::IAM::ManagedPolicy": (nodes_of_others,),
    "AWS::IAM::Policy": (nodes_of_others,),
    "AWS::IAM::Role": (nodes_of_others,),
}
