"""moto's server with what real Terraform needs and moto lacks: missing calls, answers that differ from what was set.

Runs as a program of its own: prints its port, and serves until its standard input closes, so that it never outlives
the tests. Each replaced call says what moto does instead; with a moto that does the same, it can go.
"""

import functools
import hashlib
import inspect
import json
import os
import sys
import traceback
from typing import Any
from xml.sax.saxutils import escape

os.environ.setdefault("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")  # read when moto is imported

import moto.iam.models
import moto_calls
import moto_faults
from flask import Response, request
from moto.autoscaling.models import FakeAutoScalingGroup
from moto.budgets.models import BudgetsBackend
from moto.budgets.responses import BudgetsResponse
from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.core.utils import convert_to_flask_response
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import amis
from moto.ec2.models.launch_templates import LaunchTemplate
from moto.ec2.models.route_tables import RouteTable
from moto.ec2.models.security_groups import SecurityGroupRule
from moto.ec2.responses import EC2Response
from moto.ec2.utils import parse_user_data, random_resource_id
from moto.ecr.responses import ECRResponse
from moto.iam.access_control import IAMPolicyStatement, PermissionResult
from moto.server import ThreadedMotoServer
from moto.servicequotas.responses import ServiceQuotasResponse
from moto.ssm.exceptions import ParameterNotFound
from moto.ssm.responses import SimpleSystemManagerResponse
from moto.stepfunctions.responses import StepFunctionResponse

VCPU_QUOTA = 5000.0
IMAGES, POLICY = "amzn2-ami-", "AmazonSSMManagedInstanceCore"  # all that modules and tests name


def main() -> None:
    install()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()


def install() -> None:
    """Put everything of this file into moto, and what can go wrong."""
    moto_faults.install()
    keep_what_is_used()
    for response, calls in REPLACED_CALLS.items():
        for call in calls:
            setattr(response, call.__name__, call)
    convert_to_flask_response.__call__ = refuse_on_failure(convert_to_flask_response.__call__)
    moto_calls.install()
    LaunchTemplate.create_version = decode_user_data(LaunchTemplate.create_version)
    SecurityGroupRule.__init__ = keep_description(SecurityGroupRule.__init__)
    FakeAutoScalingGroup.update = keep_policy(FakeAutoScalingGroup.update)
    IAMPolicyStatement.is_action_permitted = pretend_tls(IAMPolicyStatement.is_action_permitted)
    RouteTable.get_filter_value = by_prefix_list(RouteTable.get_filter_value)
    BudgetsBackend.create_budget = keep_tags(BudgetsBackend.create_budget)


def keep_what_is_used() -> None:
    """moto makes a thousand images and as many policies anew whenever it is reset, which takes seconds."""
    os.environ["MOTO_AMIS_PATH"] = "those of AMIS, and no newer ones"
    amis.AMIS[:] = [ami for ami in amis.AMIS if ami["name"].startswith(IMAGES)]
    policies = json.loads(moto.iam.models.aws_managed_policies_data)
    moto.iam.models.aws_managed_policies_data = json.dumps({POLICY: policies[POLICY]})


def refuse_on_failure(answer: Any) -> Any:
    """moto answers 500 when it fails or lacks a call, which the provider repeats for minutes; 400 ends it at once."""

    @functools.wraps(answer)
    def answer_or_refuse(*args: Any, **kwargs: Any) -> Any:
        try:
            return answer(*args, **kwargs)
        except Exception as error:
            traceback.print_exc()
            message = f"moto: {type(error).__name__}: {error}"
            if "json" in (request.content_type or ""):
                body = json.dumps({"__type": "MockFailure", "message": message})
                return Response(body, 400, content_type="application/x-amz-json-1.1")
            text = f"<Error><Code>MockFailure</Code><Message>{escape(message)}</Message></Error>"
            ec2 = "/ec2/" in request.headers.get("Authorization", "")
            wrapped = (
                f"<Response><Errors>{text}</Errors></Response>" if ec2 else f"<ErrorResponse>{text}</ErrorResponse>"
            )
            return Response(wrapped, 400, content_type="text/xml")

    return answer_or_refuse


# Placement groups: moto has none.


def placement_groups(response: EC2Response) -> dict[str, dict[str, Any]]:
    """Kept in the backend, which forgets them when it is reset."""
    groups: dict[str, dict[str, Any]] = response.ec2_backend.__dict__.setdefault("placement_groups", {})
    return groups


def create_placement_group(self: EC2Response) -> ActionResult:
    name = self._get_param("GroupName")
    if name in placement_groups(self):
        raise EC2ClientError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    group_id = random_resource_id()
    group = {
        "GroupName": name,
        "GroupId": f"pg-{group_id}",
        "GroupArn": f"arn:aws:ec2:{self.region}:{self.current_account}:placement-group/{name}",
        "State": "available",
        "Strategy": self._get_param("Strategy"),
        "Tags": [tag for spec in self._get_param("TagSpecifications", []) for tag in spec.get("Tags", [])],
    }
    placement_groups(self)[name] = group
    return ActionResult({"PlacementGroup": group})


def describe_placement_groups(self: EC2Response) -> ActionResult:
    groups = placement_groups(self)
    names = self._get_param("GroupNames", []) or list(groups)
    return ActionResult({"PlacementGroups": [_placement_group(self, name) for name in names]})


def delete_placement_group(self: EC2Response) -> ActionResult:
    name = self._get_param("GroupName")
    _placement_group(self, name)
    del placement_groups(self)[name]
    return ActionResult({})


def _placement_group(response: EC2Response, name: str) -> dict[str, Any]:
    try:
        return placement_groups(response)[name]
    except KeyError:
        unknown = f"The Placement Group '{name}' is unknown."
        raise EC2ClientError("InvalidPlacementGroup.Unknown", unknown) from None


# Launch templates: moto adds the template's own tags to those of its instances, and fails on the user data of
# every version but the first.


def create_launch_template(self: EC2Response) -> ActionResult:
    data = self._get_param("LaunchTemplateData", {})
    name, description = self._get_param("LaunchTemplateName"), self._get_param("VersionDescription")
    template = self.ec2_backend.create_launch_template(name, description, data, self._parse_tag_specification())
    result = {
        "CreateTime": template.create_time,
        "DefaultVersionNumber": 1,
        "LatestVersionNumber": 1,
        "LaunchTemplateId": template.id,
        "LaunchTemplateName": template.name,
        "Tags": template.tags,
    }
    return ActionResult({"LaunchTemplate": result})


def decode_user_data(create_version: Any) -> Any:
    @functools.wraps(create_version)
    def create(self: LaunchTemplate, data: dict[str, Any], description: str) -> Any:
        user_data = data.get("UserData")
        if user_data is not None and not isinstance(user_data, Base64EncodedString):
            data = {**data, "UserData": parse_user_data(user_data)}
        return create_version(self, data, description)

    return create


# Security group rules: moto reads the description of address ranges only.


def keep_description(initialise: Any) -> Any:
    signature = inspect.signature(initialise)

    @functools.wraps(initialise)
    def initialise_and_describe(self: SecurityGroupRule, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        target = signature.bind(self, *args, **kwargs).arguments.get("prefix_list_id") or self.source_group
        if "Description" in target:
            self.ip_range = {**self.ip_range, "Description": target["Description"]}
            # Two rules that differ in nothing else are duplicates to AWS.
            self.source_group = {name: value for name, value in self.source_group.items() if name != "Description"}

    return initialise_and_describe


# Route tables: moto finds none by the prefix list of a route.


def by_prefix_list(get_filter_value: Any) -> Any:
    @functools.wraps(get_filter_value)
    def value(self: RouteTable, filter_name: str, method_name: str | None = None) -> Any:
        if filter_name == "route.destination-prefix-list-id":
            lists = [route.destination_prefix_list for route in self._routes.values()]
            return [prefix_list.id for prefix_list in lists if prefix_list is not None]
        return get_filter_value(self, filter_name, method_name)

    return value


# Auto Scaling groups: moto drops the mixed instances policy in an update that does not mention it.


def keep_policy(update: Any) -> Any:
    @functools.wraps(update)
    def update_and_keep(self: FakeAutoScalingGroup, *args: Any, **kwargs: Any) -> None:
        before = self.mixed_instances_policy
        update(self, *args, **kwargs)
        if not kwargs.get("mixed_instances_policy") and not kwargs.get("launch_template"):
            self.mixed_instances_policy = before

    return update_and_keep


# Bucket policies: moto refuses everything to a bucket that refuses what comes without TLS, however it comes.


def pretend_tls(is_action_permitted: Any) -> Any:
    @functools.wraps(is_action_permitted)
    def permitted(self: IAMPolicyStatement, *args: Any, **kwargs: Any) -> PermissionResult:
        if "aws:SecureTransport" in self._statement.get("Condition", {}).get("Bool", {}):
            return PermissionResult.NEUTRAL
        return is_action_permitted(self, *args, **kwargs)

    return permitted


# Budgets: moto keeps neither tags nor the addresses of notifications, and cannot change a budget.


def keep_tags(create_budget: Any) -> Any:
    @functools.wraps(create_budget)
    def create(self: BudgetsBackend, account_id: str, budget: dict[str, Any], notifications: list[Any]) -> None:
        create_budget(self, account_id, budget, notifications)
        self.budgets[account_id][budget["BudgetName"]].tags = {}

    return create


def create_budget(self: BudgetsResponse) -> str:
    account, budget = self._get_param("AccountId"), self._get_param("Budget")
    self.backend.create_budget(account, budget, self._get_param("NotificationsWithSubscribers", []))
    tags = {tag["Key"]: tag["Value"] for tag in self._get_param("ResourceTags", [])}
    self.backend.budgets[account][budget["BudgetName"]].tags = tags
    return "{}"


def update_budget(self: BudgetsResponse) -> str:
    new = self._get_param("NewBudget")
    self.backend.budgets[self._get_param("AccountId")][new["BudgetName"]].budget.update(new)
    return "{}"


def describe_subscribers_for_notification(self: BudgetsResponse) -> str:
    budget = self.backend.budgets[self._get_param("AccountId")][self._get_param("BudgetName")]
    asked = self._get_param("Notification")
    same = [one for one in budget.notifications if asked.items() <= one.details.items()]
    return json.dumps({"Subscribers": same[0].subscribers if same else []})


def list_tags_for_resource(self: BudgetsResponse) -> str:
    tags = _tags_of_budget(self)
    return json.dumps({"ResourceTags": [{"Key": key, "Value": value} for key, value in tags.items()]})


def tag_resource(self: BudgetsResponse) -> str:
    _tags_of_budget(self).update({tag["Key"]: tag["Value"] for tag in self._get_param("ResourceTags")})
    return "{}"


def untag_resource(self: BudgetsResponse) -> str:
    for key in self._get_param("ResourceTagKeys"):
        _tags_of_budget(self).pop(key, None)
    return "{}"


def _tags_of_budget(response: BudgetsResponse) -> dict[str, str]:
    name = response._get_param("ResourceARN").split(":budget/")[1]
    tags: dict[str, str] = response.backend.budgets[response.current_account][name].tags
    return tags


# Service quotas: moto knows those of VPCs only.


def get_service_quota(self: ServiceQuotasResponse) -> str:
    service, code = self._get_param("ServiceCode"), self._get_param("QuotaCode")
    quota = {
        "ServiceCode": service,
        "ServiceName": service,
        "QuotaCode": code,
        "QuotaName": f"vCPUs ({code})",
        "QuotaArn": f"arn:aws:servicequotas:{self.region}:{self.current_account}:{service}/{code}",
        "Value": VCPU_QUOTA,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
    return json.dumps({"Quota": quota})


def get_aws_default_service_quota(self: ServiceQuotasResponse) -> str:
    return get_service_quota(self)


# State machines: moto cannot say whether a definition is one, and knows no versions of them.


def validate_state_machine_definition(self: StepFunctionResponse) -> str:
    json.loads(self._get_param("definition"))["StartAt"]
    return json.dumps({"result": "OK", "diagnostics": [], "truncated": False})


def list_state_machine_versions(self: StepFunctionResponse) -> str:  # noqa: ARG001
    return json.dumps({"stateMachineVersions": []})


# AWS's own machine and container images: moto has neither the parameters nor the registry.


def get_parameter(self: SimpleSystemManagerResponse) -> ActionResult:
    name = self._get_param("Name")
    image = next(image for image in amis.AMIS if image["architecture"] == "x86_64")
    if not name.startswith("/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-"):
        raise ParameterNotFound(f"Parameter {name} not found.")
    arn = f"arn:aws:ssm:{self.region}::parameter{name}"
    parameter = {"Name": name, "Type": "String", "Value": image["ami_id"], "Version": 1, "ARN": arn}
    return ActionResult({"Parameter": {**parameter, "DataType": "text"}})


def describe_images(self: ECRResponse) -> ActionResult:
    """Of another tag, another digest."""
    (asked,) = self._get_param("imageIds")
    digest = hashlib.sha256(asked["imageTag"].encode()).hexdigest()
    image = {
        "registryId": self._get_param("registryId"),
        "repositoryName": self._get_param("repositoryName"),
        "imageDigest": f"sha256:{digest}",
        "imageTags": [asked["imageTag"]],
        "imageSizeInBytes": 10**10,
        "imagePushedAt": 1.7e9,
    }
    return ActionResult({"imageDetails": [image]})


def describe_repositories(self: ECRResponse) -> ActionResult:
    """The provider asks for the address of the repository, too."""
    (name,) = self._get_param("repositoryNames")
    registry = self._get_param("registryId")
    repository = {
        "repositoryName": name,
        "registryId": registry,
        "repositoryUri": f"{registry}.dkr.ecr.{self.region}.amazonaws.com/{name}",
        "repositoryArn": f"arn:aws:ecr:{self.region}:{registry}:repository/{name}",
    }
    return ActionResult({"repositories": [repository]})


REPLACED_CALLS: dict[type, list[Any]] = {
    ECRResponse: [describe_images, describe_repositories],
    SimpleSystemManagerResponse: [get_parameter],
    EC2Response: [
        create_placement_group,
        describe_placement_groups,
        delete_placement_group,
        create_launch_template,
    ],
    BudgetsResponse: [
        create_budget,
        update_budget,
        describe_subscribers_for_notification,
        list_tags_for_resource,
        tag_resource,
        untag_resource,
    ],
    StepFunctionResponse: [validate_state_machine_definition, list_state_machine_versions],
    ServiceQuotasResponse: [get_service_quota, get_aws_default_service_quota],
}


if __name__ == "__main__":
    main()
