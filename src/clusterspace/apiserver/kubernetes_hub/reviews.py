"""An AdmissionReview of a kube-apiserver, answered by the rules of our own hub.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from base64 import b64encode
from typing import Any, Final, cast

import msgspec

from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.kubernetes_hub.manifests import part_user
from clusterspace.apiserver.options import WriteOptions
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.errors import ApiError, BadRequest
from clusterspace.kube import statuses
from clusterspace.kube.json_errors import UNREADABLE
from clusterspace.kube.json_patches import write_pointer
from clusterspace.kube.objects import Object, find_at

_REVIEW: Final = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


async def answer_review(hub: HubState, body: bytes) -> Object:
    """Return the answer to a review: allowed, with what is to be changed, or refused.

    A refusal is the Status that our own hub would have answered with. BadRequest for a body that
    is no review; what else goes wrong is the caller's 500, and the API server refuses the write.
    """
    try:
        request = cast("Object", msgspec.json.decode(body)["request"])
        uid, admission = str(request["uid"]), read_admission(hub, request)
    except (KeyError, TypeError, AttributeError, *UNREADABLE) as error:
        raise BadRequest("the body is no AdmissionReview of admission.k8s.io/v1") from error
    warnings: dict[str, None] = {}
    response: Object = {"uid": uid, "allowed": True}
    if admission is not None:
        noting = Admission(
            admission.served,
            admission.user,
            admission.new,
            admission.old,
            admission.subresource,
            warn=lambda text: warnings.update({text: None}),
            options=admission.options,
        )
        try:
            admitted = await hub.admit(noting)
        except ApiError as refused:
            response = {"uid": uid, "allowed": False, "status": statuses.status_of(refused)}
        else:
            patch = difference(admission.new, admitted)
            if patch:
                encoded = b64encode(msgspec.json.encode(patch)).decode()
                response |= {"patchType": "JSONPatch", "patch": encoded}
    if warnings:
        response["warnings"] = list(warnings)
    return {**_REVIEW, "response": response}


def read_admission(hub: HubState, request: Object) -> Admission | None:
    """Read a review's request; None when it is about a kind that we know nothing of."""
    resource = cast("dict[str, str]", request["resource"])
    served = hub.catalog.find(resource.get("group", ""), resource["version"], resource["resource"])
    if served is None:
        return None
    info = cast("Object", request.get("userInfo") or {})
    extra = cast("dict[str, list[str]]", info.get("extra") or {})
    user = User(
        part_user(str(info.get("username") or "")),
        tuple(info.get("groups") or ()),
        str(info.get("uid") or ""),
        {key: tuple(values) for key, values in extra.items()},
    )
    manager = str(find_at(request, "options", "fieldManager") or "")
    return Admission(
        served,
        user,
        cast("Object", request["object"]),
        cast("Object | None", request.get("oldObject")),
        str(request.get("subResource") or ""),
        options=WriteOptions(
            dry_run=bool(request.get("dryRun")), field_validation="", field_manager=manager
        ),
    )


def difference(before: Any, after: Any, steps: tuple[str, ...] = ()) -> list[Object]:
    """Return the JSON patch from one object to another; a list is replaced as a whole."""
    if before is after or before == after:
        return []
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [{"op": "replace", "path": write_pointer(steps), "value": after}]
    old, new = cast("Object", before), cast("Object", after)
    patch: list[Object] = [
        {"op": "remove", "path": write_pointer((*steps, key))} for key in old if key not in new
    ]
    for key, value in new.items():
        here = (*steps, key)
        if key in old:
            patch += difference(old[key], value, here)
        else:
            patch.append({"op": "add", "path": write_pointer(here), "value": value})
    return patch
