"""Expressions that take long are evaluated beside the event loop, however small the object is."""

import threading
from typing import Any, cast

from clusterspace.apiserver.admission.policies import Effort
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.state import Admission
from clusterspace.kube.cel.requests import Declarations, Evaluation

PRODUCT = "object.data.all(a, object.data.all(b, object.data.all(c, a + b + c >= 0)))"


async def where(effort: Effort, numbers: int) -> str:
    """Evaluate about so many numbers; return in which thread that was."""
    expression = Declarations(has_params=False).compile(PRODUCT, ())
    evaluation = Evaluation({"object": {"data": list(range(numbers))}})

    def work() -> str:
        assert evaluation.evaluate(expression) is True
        effort.note(evaluation)
        effort.finish()
        is_loops = threading.current_thread() is threading.main_thread()
        return "the loop's" if is_loops else "beside it"

    admission = Admission(cast("Any", None), User("jane"), {})
    return await effort.run(admission, work)


async def test_what_nobody_knows_yet_and_what_took_long_once_is_evaluated_beside_the_loop() -> None:
    effort = Effort()

    unknown = await where(effort, 2)
    short = await where(effort, 2)
    long = await where(effort, 15)  # nobody could know
    again = [await where(effort, 15), await where(effort, 2)]

    assert (unknown, short, long) == ("beside it", "the loop's", "the loop's")
    assert again == ["beside it", "beside it"]
