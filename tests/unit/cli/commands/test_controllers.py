import pytest
from click.testing import CliRunner

from clusterspace.cli.commands.controllers import agent


@pytest.mark.parametrize("options", [["--name", "west"], ["--hub-kubeconfig", "hub.yaml"]])
def test_an_invited_agent_needs_to_know_its_name_and_its_hub(options: list[str]) -> None:
    answer = CliRunner().invoke(agent, options)
    assert answer.exit_code == 2
    assert "--name and --hub-kubeconfig go together" in answer.output
