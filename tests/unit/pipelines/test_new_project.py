"""`headrace pipeline new`: what it writes is whole, and never over what is there."""

import ast

import pytest

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.new import write_project


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


def test_nothing_is_overwritten(tmp_path):
    write_project("mine", tmp_path)
    with pytest.raises(PipelineError, match="is there already"):
        write_project("mine", tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "a b", "7up", "-x", "é"])
def test_a_name_that_cannot_be_a_function_is_refused(name, tmp_path):
    with pytest.raises(PipelineError, match="is no name"):
        write_project(name, tmp_path)
    assert not list(tmp_path.iterdir())
