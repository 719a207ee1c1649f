"""`headrace pipeline new`: what it writes is whole, and never over what is there."""

import ast
import re
from importlib import import_module

import pytest

from headrace.pipelines import Console, Topic, pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.new import write_project
from headrace.pipelines.testing import run_stream


def test_every_file_is_there_and_python_can_read_it(tmp_path):
    made = write_project("busy-hours", tmp_path)
    assert sorted(path.name for path in made) == [
        ".gitignore",
        "README.md",
        "busy_hours_pipeline.py",
        "requirements.txt",
        "test_busy_hours.py",
    ]
    for path in made:
        text = path.read_text()
        assert "$" not in text
        if path.suffix == ".py":
            ast.parse(text)
            assert max(map(len, text.splitlines())) <= 100


def test_what_it_imports_of_headrace_is_there(tmp_path):
    for path in write_project("busy-hours", tmp_path):
        if path.suffix != ".py":
            continue
        for line in ast.walk(ast.parse(path.read_text())):
            if isinstance(line, ast.ImportFrom) and str(line.module).startswith("headrace"):
                module = import_module(line.module)
                assert [each.name for each in line.names if not hasattr(module, each.name)] == []


def test_a_stream_without_a_table_has_no_rows_to_return(tmp_path):
    @pipeline(source=Topic("events"), sink=Console())
    def shown(rows):
        return rows

    with pytest.raises(PipelineError, match="shown writes no table"):
        run_stream(shown, "localhost:9", tmp_path)


def test_nothing_is_overwritten(tmp_path):
    write_project("mine", tmp_path)
    with pytest.raises(PipelineError, match="is there already"):
        write_project("mine", tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "a b", "7up", "-x", "é"])
def test_a_name_that_cannot_be_a_function_is_refused(name, tmp_path):
    with pytest.raises(PipelineError, match="is not the name"):
        write_project(name, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["class", "Import", "sum", "window", "json", "rows", "topics"])
def test_a_name_that_the_files_need_for_something_else_is_refused(name, tmp_path):
    with pytest.raises(PipelineError, match="Choose another one"):
        write_project(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_readme_runs_the_file_whatever_the_name_of_its_pipeline(tmp_path):
    """A pipeline is called as its function, in small letters: `Busy-Hours` would not be found."""
    [readme] = [path for path in write_project("Busy-Hours", tmp_path) if path.name == "README.md"]
    [which] = re.findall(r"headrace pipeline run (\S+)", readme.read_text())
    assert (readme.parent / which).is_file()
