# SPDX-License-Identifier: Apache-2.0
"""Local runners: what is chosen, that every mode computes the same, and what a failure looks like."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import apache_beam as beam
import grpc
import pytest
from apache_beam.options.pipeline_options import DebugOptions
from apache_beam.testing.util import assert_that, equal_to

from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.running.messages import explain
from tokenmill.pipeline.running.runners import (
    MODES,
    RunnerSettings,
    check_beam_args,
    choose_runner,
    open_runner,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("beam_args", "ours", "expected"),
    [
        ([], {"workers": 1}, RunnerSettings(None, "inline", 1)),
        ([], {"workers": 2}, RunnerSettings(None, "threads", 2)),
        ([], {"workers": 17}, RunnerSettings(None, "processes", 17)),
        ([], {"mode": "inline"}, RunnerSettings(None, "inline", 1)),
        ([], {"mode": "processes", "workers": 3}, RunnerSettings(None, "processes", 3)),
        (["--runner=DirectRunner"], {"workers": 2}, RunnerSettings(None, "threads", 2)),
        (["--runner", "FnApiRunner"], {"workers": 2}, RunnerSettings(None, "threads", 2)),
        (
            ["--direct_runner_bundle_repeat=1"],
            {"mode": "inline"},
            RunnerSettings(None, "inline", 1, ("--direct_runner_bundle_repeat=1",)),
        ),
        (
            ["--runner=FlinkRunner", "--parallelism=2"],
            {},
            RunnerSettings("FlinkRunner", "processes", 0, ("--runner=FlinkRunner", "--parallelism=2")),
        ),
    ],
)
def test_choice(beam_args, ours, expected):
    assert choose_runner(beam_args, **ours) == expected


@pytest.mark.parametrize(
    ("beam_args", "ours", "message"),
    [
        (["--direct_running_mode=in_memory"], {}, "--direct_running_mode: is not used here; say it by --mode"),
        (["--direct_num_workers", "3"], {}, "--direct_num_workers: is not used here; say it by --workers"),
        (["--direct_num_workers"], {}, "--direct_num_workers needs a value"),
        ([], {"workers": 0}, "--workers must be at least 1, got 0"),
        ([], {"mode": "inline", "workers": 2}, "--mode inline has one worker, got --workers 2"),
        ([], {"mode": "hybrid"}, "mode hybrid is gone: processes serve many cores"),
        ([], {"mode": "thread"}, "mode must be one of inline, threads, processes, got 'thread'"),
        (["--runner=DaskRunner"], {}, "--runner=DaskRunner: loses data"),
        (["--runner=FlinkRunner"], {"workers": 2}, "--mode and --workers are for local runs; FlinkRunner has"),
    ],
)
def test_choices_that_are_refused(beam_args, ours, message):
    with pytest.raises(ValueError, match=message):
        choose_runner(beam_args, **ours)


def test_no_more_workers_are_chosen_than_there_are_splits(monkeypatch):
    monkeypatch.setattr("tokenmill.pipeline.running.runners.available_cores", lambda: 4)
    assert str(choose_runner(n_splits=1)) == str(choose_runner(n_splits=0)) == "1 worker, inline"
    assert str(choose_runner(n_splits=3)) == "3 workers, threads"
    assert str(choose_runner(n_splits=9)) == str(choose_runner()) == "4 workers, threads"
    assert str(choose_runner(n_splits=1, workers=99)) == "1 worker, inline"
    assert str(choose_runner(n_splits=3, workers=2)) == "2 workers, threads"


def test_unknown_beam_option_is_an_error_locally():
    message = "--max_cache_memory=3: no such Beam option; did you mean --max_cache_memory_usage_mb"
    with pytest.raises(ValueError, match=message):
        check_beam_args(choose_runner(["--max_cache_memory=3"], mode="inline"))
    settings = choose_runner(["--max_cache_memory_usage_mb=x"], mode="inline")
    with pytest.raises(ValueError, match="Beam options '--max_cache_memory_usage_mb=x'"):
        check_beam_args(settings)
    check_beam_args(choose_runner(["--max_cache_memory_usage_mb=3"], mode="inline"))
    check_beam_args(choose_runner(["--runner=PortableRunner", "--unheard_of=1"]))


def test_other_runners_get_the_options_as_they_are():
    settings = choose_runner(["--runner=PortableRunner", "--job_endpoint=localhost:1", "--unheard_of=1"])
    with open_runner(settings) as (runner, options):
        assert runner == "PortableRunner"
        assert options.get_all_options(drop_default=True)["job_endpoint"] == "localhost:1"


@pytest.mark.parametrize("has_pip", [True, False])
def test_beam_lists_no_packages_where_there_is_no_pip(has_pip, monkeypatch):
    """As in an environment made by uv: "No module named pip", and a warning of a list that nobody needs."""
    monkeypatch.setattr("importlib.metadata.distributions", lambda name: ["pip"] if has_pip else [])
    with open_runner(choose_runner(["--runner=PortableRunner", "--experiments=mine"])) as (_, options):
        experiments = options.view_as(DebugOptions).experiments
    assert experiments == ["mine"] + ["disable_logging_submission_environment"] * (not has_pip)


def _describe_worker(number):
    """Runs in a worker; what it returns is compared across modes."""
    from apache_beam.options.value_provider import RuntimeValueProvider

    assert RuntimeValueProvider.runtime_options is not None
    return (number, "é字" * number, os.environ.get("NUMBA_NUM_THREADS"), os.getppid())


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_runs_the_same_graph(mode):
    # Shuffle, side input, group by key and strings, whose coder runs in Python.
    in_process = mode in ("inline", "threads")
    settings = choose_runner([], mode=mode, workers=1 if mode == "inline" else 2)
    with open_runner(settings) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        numbers = pipeline | beam.Create(list(range(9)))
        total = numbers | "Total" >> beam.CombineGlobally(sum)
        rows = numbers | "Describe" >> beam.Map(_describe_worker)
        grouped = (
            rows
            | beam.Map(lambda row, side: (row[0] % 2, (*row[:2], side)), beam.pvalue.AsSingleton(total))
            | beam.GroupByKey()
            | beam.MapTuple(lambda key, found: (key, sorted(found)))
        )
        expected = [(k, [(n, "é字" * n, 36) for n in range(9) if n % 2 == k]) for k in range(2)]
        assert_that(grouped, equal_to(expected))
        if not in_process:  # workers are other processes, and are told to keep to one core each
            assert_that(
                rows | "Where" >> beam.Map(lambda row: row[2:]), equal_to([("1", os.getpid())] * 9), label="CheckWhere"
            )
        pipeline.run()


FAILING = """
    import os, sys
    sys.path.insert(0, {root!r})
    from tokenmill.pipeline.running.messages import configure_logging, explain
    from tokenmill.pipeline.running.runners import choose_runner, open_runner
    configure_logging()
    import apache_beam as beam

    def work(number):
        if number == 5:
            {action}
        return number

    if __name__ == "__main__":
        embed = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"]
        local = dict(mode={mode!r}, workers=1 if {mode!r} == "inline" else 2)
        settings = choose_runner(embed) if {mode!r} == "embed" else choose_runner([], **local)
        try:
            with open_runner(settings) as (runner, options):
                pipeline = beam.Pipeline(runner=runner, options=options)
                pipeline | beam.Create(list(range(8))) | beam.Map(work)
                pipeline.run().wait_until_finish()
        except Exception as error:
            print(explain(error))
            sys.exit(1)
"""


def run_script(tmp_path, script, **values):
    path = tmp_path / "job.py"
    path.write_text(textwrap.dedent(script).format(root=str(ROOT), **values))
    return subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("mode", ["inline", "threads", "processes", "embed"])
def test_a_failing_worker_is_one_message_and_no_noise(tmp_path, mode):
    # The working directory holds traps with our packages' names.
    for name in ("tokenizer", "pipeline"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported from the working directory')")
    done = run_script(tmp_path, FAILING, mode=mode, action='raise ValueError("bad: x\\nsecond: y")')
    assert (done.stdout, done.stderr, done.returncode) == ("bad: x\nsecond: y\n", "", 1)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL; the machine may be out of memory: try fewer --workers"),
        ("os._exit(0)", "ended by itself with exit code 0"),
    ],
)
def test_a_worker_process_that_dies_fails_the_job_with_the_reason(tmp_path, action, reason):
    done = run_script(tmp_path, FAILING, mode="processes", action=action)
    assert (done.stdout, done.stderr, done.returncode) == (f"a worker process {reason}\n", "", 1)


def test_a_worker_process_that_dies_before_it_connects_fails_the_job(tmp_path, monkeypatch):
    # It is ready, and told which worker it is; the runner waits for it without a limit.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'tokenmill.pipeline.running.worker_process' in sys.orig_argv:\n"
        "    import os, grpc\n"
        "    grpc.insecure_channel = lambda *_, **__: os._exit(3)\n"
    )
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    with pytest.raises(RuntimeError, match="a worker process ended by itself with exit code 3"):
        run_in_processes()


def run_in_processes():
    with open_runner(choose_runner(mode="processes", workers=2)) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        _ = pipeline | beam.Create([1, 2]) | beam.Map(str)
        pipeline.run()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("plain"), "plain"),
        (ValueError("plain [while running 'A/B']"), "plain"),
        (KeyError("a"), "KeyError: 'a'"),
        (BooksError("1 != 2"), "1 != 2"),
        (PermissionError(13, "denied", "x"), "[Errno 13] denied: 'x'"),
        (ZeroDivisionError(), "ZeroDivisionError"),
        (
            grpc.FutureTimeoutError(),
            "no job server answers at --job_endpoint; correct it, or wait longer by --job_server_timeout=SECONDS",
        ),
        (RuntimeError("FileNotFoundError: [Errno 2] no: 'x' [while running 'A']"), "[Errno 2] no: 'x'"),
        (
            RuntimeError(
                'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise X: y\nE: first\n\nDuring '
                'handling of the above\n\nTraceback (most recent call last):\n  File "a.py", line 2, in g\n    g()\n'
                "pipeline.x.FoundError: it: broke\n  in two lines [while running 'A/ParDo(B)']\n"
            ),
            "FoundError: it: broke\n  in two lines",
        ),
        (RuntimeError("Traceback (most recent call last):\n  File\nValueError: v\n"), "v"),
        (RuntimeError("Traceback (most recent call last):\n  File\nKeyboardInterrupt\n"), "KeyboardInterrupt"),
    ],
)
def test_explain(error, expected):
    assert explain(error) == expected


@pytest.mark.parametrize("wrapped", ["{}", "Traceback (most recent call last):\n  File\nOSError: {}\n"])
def test_errors_about_the_output_name_its_key(wrapped):
    text = "'/data/out/_tmp/x': No space left on device"
    error = (OSError if wrapped == "{}" else RuntimeError)(wrapped.format(text))
    assert explain(error, "/data/out") == f"output.path: {text}"
    assert explain(error, "/elsewhere") == explain(error) == text
    assert explain(ValueError("/data/out"), "/data/out") == "/data/out"


def test_logging_is_quiet_and_follows_stderr(capsys):
    code = (
        "import logging; from tokenmill.pipeline.running.messages import configure_logging; configure_logging();"
        "import apache_beam, sys, io;"
        "logging.getLogger('apache_beam.runners.common').error('no');"
        "logging.getLogger('apache_beam.utils.subprocess_server').warning('no');"
        "logging.getLogger('PrismRunner').error('no');"
        "sys.stderr = io.StringIO(); logging.warning('yes'); print(sys.stderr.getvalue(), end='')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("WARNING root: yes\n", "")
