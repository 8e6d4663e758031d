"""Images that cannot be pulled: which those are, and how a pod looks that waits for one.

Nothing is pulled here, so almost every image is there. Not there are images of a registry under
`.invalid`, which by its name is nobody's, and of a repository `fake`; and an image whose name is no
name. A pod that needs one is Pending, in the kubelet's words, until its image is another.
"""

import re
from typing import Final

from clusterspace.kube.conditions import Condition, set_condition
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.times import format_time

BACKING_OFF: Final = "ImagePullBackOff"
INVALID_NAME: Final = "InvalidImageName"
INITIALIZING: Final = "PodInitializing"
CREATING: Final = "ContainerCreating"

_NOWHERE: Final = "fake"
_NOBODYS: Final = ".invalid"

_HOST: Final = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[\w][\w.-]{{0,127}})?(?:@[\w+.-]+:[0-9a-fA-F]{{32,}})?"
)


def waiting_for(image: str) -> Object | None:
    """Return the state of a container whose image is not there; None when it is."""
    if image and not _REFERENCE.fullmatch(image):
        why = f'couldn\'t parse image name "{image}": invalid reference format'
        message = f'Failed to apply default image tag "{image}": {why}'
        return {"waiting": {"reason": INVALID_NAME, "message": message}}
    registry, slash, _ = image.partition("/")
    is_nowhere = registry == _NOWHERE or registry.partition(":")[0].endswith(_NOBODYS)
    if not slash or not is_nowhere:
        return None
    why = "pull access denied, repository does not exist or may require authorization"
    message = f'Back-off pulling image "{image}": ErrImagePull: failed to pull "{image}": {why}'
    return {"waiting": {"reason": BACKING_OFF, "message": message}}


def lacks_image(pod: Object) -> bool:
    """Whether a pod needs an image that is not there."""
    return any(
        waiting_for(str(each.get("image") or "")) is not None
        for part in ("initContainers", "containers")
        for each in find_at(pod, "spec", part) or ()
    )


def without_image(pod: Object, host_address: str, now: float) -> Object:
    """Return a pod that was given to a node and waits there for images."""
    before: Object = pod.get("status") or {}
    inits: list[Object] = find_at(pod, "spec", "initContainers") or []
    containers: list[Object] = find_at(pod, "spec", "containers") or []
    is_initialized = not inits
    idle: Object = {"waiting": {"reason": CREATING if is_initialized else INITIALIZING}}

    def statuses(listed: list[Object], state: Object) -> list[Object]:
        return [
            {
                "name": each["name"],
                "image": each.get("image", ""),
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": waiting_for(str(each.get("image") or "")) or state,
                "lastState": {},
            }
            for each in listed
        ]

    names = " ".join(str(each["name"]) for each in containers)
    unready = f"containers with unready status: [{names}]"
    conditions: list[Object] = before.get("conditions") or []
    incomplete = " ".join(str(each["name"]) for each in inits)
    initialized = (
        Condition("Initialized", "True", "")
        if is_initialized
        else Condition(
            "Initialized",
            "False",
            "ContainersNotInitialized",
            f"containers with incomplete status: [{incomplete}]",
        )
    )
    for each in (
        Condition("PodReadyToStartContainers", "True", ""),
        initialized,
        Condition("Ready", "False", "ContainersNotReady", unready),
        Condition("ContainersReady", "False", "ContainersNotReady", unready),
        Condition("PodScheduled", "True", ""),
    ):
        conditions = set_condition(conditions, each, now).conditions
    status: Object = {
        **before,
        "phase": "Pending",
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "startTime": before.get("startTime") or format_time(now),
        "containerStatuses": statuses(containers, idle),
        "conditions": [
            {key: value for key, value in each.items() if value != ""} for each in conditions
        ],
    }
    if inits:
        idle_init: Object = {"waiting": {"reason": INITIALIZING}}
        status["initContainerStatuses"] = statuses(inits, idle_init)
    return {**pod, "status": status}
