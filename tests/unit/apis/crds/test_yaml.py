"""Our definitions as YAML are, object for object, those that the notation leads to."""

import json
from pathlib import Path

import yaml

from clusterspace.apis import crds

FILES = sorted(Path(crds.__file__).parent.glob("*.yaml"))


def test_the_files_hold_the_same_definitions_in_the_same_order_of_fields():
    read = {path.name: yaml.safe_load(path.read_text()) for path in FILES}
    built = {
        f"{each['spec']['group']}_{each['spec']['names']['plural']}.yaml": each
        for each in crds.definitions()
    }
    assert {name: json.dumps(each) for name, each in read.items()} == {
        name: json.dumps(each) for name, each in built.items()
    }
