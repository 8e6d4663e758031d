"""Field selectors taken apart: what clusters are sent, and what is judged here."""

import msgspec
import pytest

from clusterspace.fleet.gateway.merge.field_filters import read_filter
from clusterspace.fleet.gateway.merge.lists import ClusterList
from clusterspace.fleet.gateway.routes import Naming, Subject

PODS = Subject("", "v1", "pods")
WIDGETS = Subject("example.com", "v1", "widgets")


@pytest.mark.parametrize(
    ("subject", "asked", "sent"),
    [
        (PODS, "status.phase!=Running,spec.priority=7", "status.phase!=Running"),
        (
            PODS,
            "spec.nodeName=n1,spec.priority=7,metadata.namespace=x",
            "metadata.namespace=x,spec.nodeName=n1",
        ),
        (PODS, "spec.priority=7", ""),
        (WIDGETS, "spec.colour=red,metadata.name!=w", "metadata.name!=w"),
    ],
)
def test_clusters_are_sent_what_every_api_server_selects_by(
    subject: Subject, asked: str, sent: str
):
    found = read_filter(asked, subject, include="Object", is_metadata_only=False)

    assert found is not None
    assert found.sent == sent


@pytest.mark.parametrize("asked", ["status.phase=Running", "metadata.name!=p", ""])
def test_nothing_is_judged_here_that_clusters_judge(asked: str):
    assert read_filter(asked, PODS, include="Object", is_metadata_only=False) is None


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ("spec.text=a", True),
        ("spec.number=3", True),
        ("spec.part=1.5", True),
        ("spec.flag=true", True),
        ("spec.flag=True", False),
        ("spec.none=", True),
        ("spec.absent=", True),
        ("spec.absent!=x", True),
        ("spec.list=", False),
        ("spec.list[1]=b", True),
        ("spec.list[-1]=b", True),
        ("spec.list[2]=", True),
        ("spec.list[*]=a", True),
        ("spec.list[*]!=a", False),
        ("spec.list[*]!=c", True),
        ("spec.map.a=1,spec.map.a!=2", True),
        ("spec['map'].a=1", True),
        ("other.deep.down=", True),
    ],
)
def test_fields_are_compared_as_text(asked: str, fits: bool):
    spec = {"text": "a", "number": 3, "part": 1.5, "flag": True, "none": None}
    spec |= {"list": ["a", "b"], "map": {"a": 1}}
    item = {"metadata": msgspec.Raw(b"{}"), "spec": msgspec.Raw(msgspec.json.encode(spec))}
    found = read_filter(asked, WIDGETS, include="Object", is_metadata_only=False)

    assert found is not None
    listed = ClusterList(Naming("east"), "WidgetList", "example.com/v1", items=(item,))
    assert found.matches(listed) == [fits]
