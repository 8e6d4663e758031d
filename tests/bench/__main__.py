"""`python -m tests.bench [NAME…]`: run the benchmarks, all of them or those named."""

import runpy
import sys
from pathlib import Path


def main() -> None:
    here = Path(__file__).parent
    modules = (path.stem.removeprefix("bench_") for path in here.glob("bench_*.py"))
    known = sorted(each.replace("_", "-") for each in modules)
    wanted = sys.argv[1:] or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        sys.exit(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(known)}")
    for name in wanted:
        print(f"\n== {name}")
        sys.argv = [name]  # a benchmark that takes arguments must not take our own
        runpy.run_module(
            f"tests.bench.bench_{name.replace('-', '_')}", run_name="__main__", alter_sys=True
        )


main()
