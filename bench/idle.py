"""What it costs to find out that nothing is new: a poll in a running engine, and `headwater run FILE --once`.

Run: python bench/idle.py [ROWS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from full_load import make_table

from headwater.api import Project
from headwater.config.load import load_project
from headwater.engine.cycle import run_cycle
from headwater.services.stack.postgres import running_postgres


def main(rows: int) -> None:
    with running_postgres() as server, tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        make_table(server.url(), "orders", rows)
        (folder / "orders.yaml").write_text(f"""
pipeline: orders
source: {{sql: {{url: "{server.url()}", table: public.orders, cursor: id}}}}
sinks: [{{files: {{path: ./files}}}}]
""")
        with Project(load_project(folder), folder) as project:
            pipeline = project.pipelines([folder / "orders.yaml"])[0]
            print("first load:", pipeline.run_once().outcome)
            opened = pipeline.open()
            polls = []
            for _ in range(50):
                began = time.monotonic()
                assert run_cycle(opened).outcome == "nothing new"
                polls.append(time.monotonic() - began)
            opened.close()
        print(
            f"idle poll over {rows:,} rows: median {statistics.median(polls) * 1000:.1f} ms, worst {max(polls) * 1000:.1f} ms (under 50)"
        )
        runs = []
        for _ in range(5):
            began = time.monotonic()
            command = [Path(sys.executable).with_name("headwater"), "run", "orders.yaml", "--once"]
            process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
            runs.append(time.monotonic() - began)
        print(process.stderr.strip() or process.stdout.strip())
        print(
            f"headwater run FILE --once, nothing new: median {statistics.median(runs):.2f} s, worst {max(runs):.2f} s (under 1.5)"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
