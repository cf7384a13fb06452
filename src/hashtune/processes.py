"""One function over many items in several processes: results in order, few items in flight."""

import multiprocessing
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

IN_FLIGHT = 2  # items a process, so that none waits for the reader
_inherited: list[Callable[[Any], Any]] = []  # in a worker: the function, which fork copied


def in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    processes: int,
    start: Callable[[], None],
) -> Iterator[Result]:
    """function(item) of every item, in the items' order, whatever the number of processes.

    With one process, or where there is no fork (it copies the function, which may hold what cannot
    be sent), everything runs here.

    Args:
        function: called in a worker; its results are sent back.
        items: read as they are needed.
        processes: number of workers.
        start: called once in each worker before its first item.
    """
    if processes == 1 or sys.platform != "linux":
        yield from map(function, items)
        return
    waiting = iter(items)
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("fork"),
        initializer=_begin,
        initargs=(function, start),
    )
    futures: deque[Future[Result]] = deque()
    try:
        for item in islice(waiting, IN_FLIGHT * processes):
            futures.append(pool.submit(_call, item))
        while futures:
            yield futures.popleft().result()
            futures += [pool.submit(_call, item) for item in islice(waiting, 1)]
    finally:
        # not future.cancel(): where only such ones are left Python 3.11.2 waits for ever
        pool.shutdown(cancel_futures=True)


def _begin(function: Callable[[Any], Any], start: Callable[[], None]) -> None:
    start()
    _inherited[:] = [function]


def _call(item: Any) -> Any:
    return _inherited[0](item)
