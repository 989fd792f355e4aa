# SPDX-License-Identifier: Apache-2.0
"""`make soak PART=spark`: a Spark cluster of one master and two workers reads the events of 256 ranks that `store add --events` wrote, and
answers the questions of docs/fleet.md as DuckDB does."""
import json
import os
import re
import subprocess
import time

import pytest

import engines as engines_module
from engines import ROOT

HOST = "127.0.0.1"
VENV = ROOT / "build" / "venv-spark"

# What the driver runs, in the environment of pyspark: the questions come as JSON, the answers and the number of executors go back.
DRIVER = """
import json, sys, time
from pyspark.sql import SparkSession
master, place, questions = json.load(sys.stdin)
spark = (SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
         .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "4").config("spark.executor.cores", "1").getOrCreate())
executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos
while len(executors()) < 3:  # two, and the driver
    time.sleep(0.1)
spark.read.option("pathGlobFilter", "*.parquet").parquet(place).createOrReplaceTempView("events")
answers = [[list(map(str, row)) for row in spark.sql(question).collect()] for question in questions]
print(json.dumps([answers, len(executors()) - 1]))
spark.stop()
"""


class Cluster:
    """One master and two workers, standalone, on ports that the kernel chose."""

    def __init__(self, place):
        [self.home] = VENV.glob("lib/python*/site-packages/pyspark")
        self.place = place
        self.env = {**os.environ, "SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": str(VENV / "bin" / "python")}
        self.log = place / "master.log"
        self.daemons = []
        self.start(self.log, "master.Master", "--port", "0")
        self.url = self.wait(r"Starting Spark master at (spark://\S+)")[0]
        for number in range(2):
            self.start(place / f"worker{number}.log", "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", place / f"work{number}",
                       self.url)
        self.wait(r"Registering worker (\S+)", 2)

    def start(self, log, name, *words):
        with open(log, "wb") as file:
            self.daemons.append(subprocess.Popen(
                [self.home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", "--host", HOST, "--webui-port", "0", *words],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=self.env))

    def wait(self, pattern, count=1):
        end = time.monotonic() + 300
        while time.monotonic() < end and all(daemon.poll() is None for daemon in self.daemons):
            found = re.findall(pattern, self.log.read_text(encoding="utf-8", errors="replace"))
            if len(found) >= count:
                return found
            time.sleep(0.1)
        raise AssertionError(self.log.read_text(encoding="utf-8", errors="replace"))

    def ask(self, events, questions):
        done = subprocess.run([VENV / "bin" / "python", "-c", DRIVER], input=json.dumps([self.url, str(events), questions]), env=self.env,
                              capture_output=True, text=True, timeout=1200, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait()


@pytest.fixture
def cluster(tmp_path):
    subprocess.run([ROOT / "tools" / "install-packages.sh", "java", "spark"], check=True)
    found = Cluster(tmp_path)
    yield found
    found.stop()


def test_spark_answers_as_duckdb_does(cluster, msmemscope, program, out, sparks):
    line = f'for rank in $(seq 0 {sparks - 1}); do RANK=$rank "$@" --steps=$((3 + rank % 4)) || exit 1; done'
    results, place = out / "results", out / "events"
    msmemscope("--call-stack=c:6", "--no-report", "--", "sh", "-c", line, "sh", *program("leaky_steps"), output=results,
               env={"TRUTH": "/dev/null"}).check()
    msmemscope("store", "add", results, "--to", f"sqlite:{out}/store.db", "--run=nightly-17", "--events", place, output=False).check()
    assert {path.parents[1].name for path in engines_module.layout(place)} == {f"rank={rank}" for rank in range(sparks)}
    view = f"FROM read_parquet('{place}/**/*.parquet', hive_partitioning=true)"
    count = "SELECT run, count(*), count(DISTINCT rank), sum(size), min(time_ns), max(time_ns) FROM events GROUP BY run"
    asked = [*engines_module.questions(), count]
    wanted = engines_module.installed().sql(*[f"WITH events AS (SELECT * {view}) {question}" for question in asked])
    begin = time.monotonic()
    answers, executors = cluster.ask(place, asked)
    assert executors == 2
    for question, answer, right in zip(asked, answers, wanted):
        assert answer == [[str(value) for value in row] for row in right] and answer, question
    rows, ranks = wanted[-1][0][1:3]
    print(f"{rows} rows of {ranks} ranks, {sum(map(len, answers))} rows of answers equal, {time.monotonic() - begin:.0f} s")
    assert ranks == sparks
