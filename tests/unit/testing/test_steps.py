import asyncio

import pytest

from clusterspace.testing.steps import until


async def test_waiting_ends_even_if_what_is_looked_at_takes_the_cancellation_for_its_own():
    async def look() -> bool:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return False
        return True

    with pytest.raises(AssertionError, match="it did not happen within"):
        await until(look, 0.01)


async def test_what_is_there_instead_is_told():
    with pytest.raises(AssertionError, match="there is 'nothing'"):
        await until(lambda: False, 0.01, explain=lambda: "nothing")
