"""How long the first things a user meets take: importing teabert, and `teabert --help`; medians of ten processes.

python benchmarks/startup.py
"""

import statistics
import subprocess
import sys
import time

PYTHON = [sys.executable, "-c"]
COMMANDS = {
    "python -c pass": [*PYTHON, "pass"],
    "import teabert": [*PYTHON, "import teabert"],
    "teabert --help": [sys.executable, "-m", "teabert.cli", "--help"],
    "import teabert.training (torch and all)": [*PYTHON, "import teabert.training"],
}


def main() -> None:
    """Print seconds of whole processes."""
    for title, command in COMMANDS.items():
        times = []
        for _ in range(10):
            begun = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - begun)
        print(f"{statistics.median(times):6.2f} s  ({min(times):.2f}-{max(times):.2f})  {title}")


if __name__ == "__main__":
    main()
