"""The form of the project itself: what people agreed on and would otherwise forget.

The map equals the tree, tables of contents are whole, every module says what it is, links in the
docs lead somewhere, the commands that docs name exist, locks are locks.
"""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from headrace.cli.main import COMMANDS
from tests import architecture_map
from tests.soak.report import HEAD, with_row

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "src" / "headrace"
DOCUMENTS = [
    *PROJECT.glob("*.md"),
    *(PROJECT / "docs").rglob("*.md"),
    *(PROJECT / "changelog.d").glob("*.md"),
]
WRITTEN_BY_THE_GENERATOR = ("messages", "sliced", "definitions")
MODULES = [p for p in PACKAGE.rglob("*.py") if p.parent.name not in WRITTEN_BY_THE_GENERATOR]
HANDLER_FOLDERS = ("broker", "controller")  # of the node

# A file above this has become the place where one object owns everything: split it by concept.
LONGEST_FILE_LINES = 500
IMPORTS = re.compile(r"^[ \t]*from (headrace\.[\w.]+) import ", re.M)
VAGUE_NAMES = re.compile(r"(utils?|helpers?|managers?|common|misc|base|core|impl)(\.py)?", re.I)


def test_the_map_equals_the_tree() -> None:
    assert set(architecture_map.FOLDERS) == architecture_map.folders()
    assert architecture_map.drawn() == architecture_map.draw(), "run `make map`"


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(PROJECT))
        for path in MODULES
        if path.stat().st_size and not architecture_map.says(path)
    ]
    assert not silent


def test_no_file_is_vague_or_endless() -> None:
    for path in MODULES:
        assert not VAGUE_NAMES.fullmatch(path.name), path
        assert not VAGUE_NAMES.fullmatch(path.parent.name), path
        # A file never has fewer comments or docstrings in order to stay below the limit.
        text = path.read_text("utf-8")
        code = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        assert len(code) - lines_of_docstrings(text) <= LONGEST_FILE_LINES, path


def lines_of_docstrings(text: str) -> int:
    """How many lines the docstrings of a module have, those of its functions and classes too."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [
        node.body[0] for node in ast.walk(ast.parse(text)) if isinstance(node, owners) and node.body
    ]
    return sum(
        (one.end_lineno or one.lineno) - one.lineno + 1
        for one in first
        if isinstance(one, ast.Expr)
        and isinstance(one.value, ast.Constant)
        and isinstance(one.value.value, str)
    )


# ---- one word, one meaning (docs/glossary.md, "Reserved words")

# A class of this name says nothing alone: whose state, whose limits?
NAMES_OF_NOTHING = {"Limits", "Place", "Progress", "Refused", "State"}
# A reserved word in the name of a class, a function or an argument, and the folders that may.
RESERVED = {
    "park": ("app", "cli", "console", "services", "testing"),
    "settle": ("cli", "console", "services/redrive", "testing"),
}
KINDS_OF_PLACE = {"Place", "TopicPartition", "Partition"}


class Defined(NamedTuple):
    """What a module defines: a class, a function, an argument or a field."""

    name: str
    is_class: bool
    annotation: str | None  # only of `place`


# Parsing all modules takes two seconds. No tree is kept: half a million nodes made each garbage
# collection of the process longer.
@cache
def names_in(path: Path) -> list[Defined]:
    found: list[Defined] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                pass
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)):
                pass
            case _:
                continue
        kind = getattr(node, "annotation", None) if name == "place" else None
        said = None if kind is None else ast.unparse(kind)
        found.append(Defined(name, isinstance(node, ast.ClassDef), said))
    return found


def test_no_class_has_a_name_that_says_nothing_alone() -> None:
    vague = [
        f"{path.relative_to(PACKAGE)}: {each.name}"
        for path in MODULES
        for each in names_in(path)
        if each.is_class and each.name in NAMES_OF_NOTHING
    ]
    assert not vague, "say whose it is (docs/glossary.md)"


@pytest.mark.parametrize("word", RESERVED)
def test_a_reserved_word_stays_where_it_has_its_meaning(word: str) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}: {each.name}"
        for path in MODULES
        if not str(path.relative_to(PACKAGE)).startswith(RESERVED[word])
        for each in names_in(path)
        if any(part.startswith(word) for part in snake(each.name).split("_"))
    ]
    assert not wrong, f"{word!r} has another meaning (docs/glossary.md)"


def test_a_place_is_a_topic_and_a_partition() -> None:
    """By its annotation, where it has one; `place` as a verb returns something else."""
    wrong = []
    for path in MODULES:
        said = [each.annotation for each in names_in(path) if each.annotation is not None]
        wrong += [
            f"{path}: {kind}" for kind in said if not KINDS_OF_PLACE & set(re.findall(r"\w+", kind))
        ]
        aliases = re.findall(r"^Place = .*$", path.read_text("utf-8"), re.M)
        wrong += [f"{path}: {each}" for each in aliases if "= tuple[str, int]" not in each]
    assert not wrong, "a place is a topic and a partition (docs/glossary.md)"


def test_only_dispatch_mutes_a_connection() -> None:
    """By `mute` and `unmute`: a counter with several writers is left at one too many some day."""
    writers = [
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if re.search(r"\.muted [+-]?= ", path.read_text("utf-8"))
    ]
    assert sorted(writers) == ["node/serving/dispatch.py", "node/serving/session.py"]


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in (PROJECT / "docs" / "decisions").glob("*.md")]
    assert len(numbers) == len(set(numbers)), "two decisions have one number: renumber the later"


def test_a_long_run_is_noted_in_the_table_of_runs() -> None:
    later = "\n".join(["", "## Files", "", "| file | starts |", "|---|---|", "| a | 1 |", ""])
    lines = with_row(HEAD + "| one |\n" + later, "| two |")
    assert lines[lines.index("| one |") + 1] == "| two |" and lines[-1] == "| a | 1 |"


# ---- every API is in the table of contents, with a header that tells the truth


def test_what_stands_around_the_package_imports_modules_that_are_there() -> None:
    """Not every check runs benchmarks and examples, so a module that moved is missed there."""
    for folder in ("benchmarks", "examples", "tests"):
        for path in (PROJECT / folder).rglob("*.py"):
            for module in set(IMPORTS.findall(path.read_text("utf-8"))):
                name = str(PACKAGE.parent / module.replace(".", "/"))
                assert Path(f"{name}.py").is_file() or Path(name).is_dir(), f"{path}: {module}"


def handler_modules() -> list[ModuleType]:
    return [
        import_module(f"headrace.node.{owner}.handlers.{path.stem}")
        for owner in HANDLER_FOLDERS
        for path in sorted((PACKAGE / "node" / owner / "handlers").glob("*.py"))
        if path.stem != "__init__" and hasattr_api(path)
    ]


def hasattr_api(path: Path) -> bool:
    """Whether a file in handlers/ defines an API; parts shared by handlers may lie there too."""
    return any(
        isinstance(line, ast.Assign | ast.AnnAssign) and "API" in ast.dump(line)[:80]
        for line in ast.parse(path.read_text("utf-8")).body
    )


def table_of_contents() -> list[Any]:
    tables = (
        import_module(f"headrace.node.{owner}.handlers").HANDLERS for owner in HANDLER_FOLDERS
    )
    return [api for table in tables for api in table]


def test_every_handler_is_in_a_table_of_contents_once() -> None:
    listed = [api.messages.NAME for api in table_of_contents()]
    assert len(listed) == len(set(listed))
    assert {module.API.messages.NAME for module in handler_modules()} == set(listed)


def test_every_handlers_header_tells_its_name_and_versions() -> None:
    for module in handler_modules():
        api = module.API
        first, last = api.versions.start, api.versions.stop - 1
        versions = f"v{first}" if first == last else f"v{first}-{last}"
        header = (module.__doc__ or "").splitlines()[0]
        assert header.startswith(f"{api.messages.NAME}, {versions}: "), module.__name__


def client_apis() -> set[str]:
    """Every API in the definitions, by its name."""
    names = set()
    for path in (PACKAGE / "wire" / "protocol" / "messages").glob("*.py"):
        text = path.read_text("utf-8")
        if "\nENCODE_REQUEST" in text and (name := re.search(r'^NAME = "(\w+)"', text, re.M)):
            names.add(name[1])
    return names


def test_dispatching_knows_no_worker_and_a_shadow_no_app() -> None:
    """Not for types either: 27 modules of apps were one knot, in which none stood for itself."""
    apps = PACKAGE / "app"
    for path in (*(apps / "dispatch").glob("*.py"), apps / "shadow.py"):
        named = IMPORTS.findall(path.read_text("utf-8"))
        outside = [
            each for each in named if each.startswith(("headrace.app.worker", "headrace.app.app"))
        ]
        assert not outside, path


def test_every_api_is_compared_with_apache_kafka_or_said_to_differ() -> None:
    """What is served has a conformance test; the rest has a line in docs/not-supported.md."""
    said = (PROJECT / "docs" / "not-supported.md").read_text("utf-8")
    scripts = "".join(
        path.read_text("utf-8") for path in (PROJECT / "tests" / "conformance").rglob("*.py")
    )
    served = {api.messages.NAME for api in table_of_contents()}
    silent = sorted(
        name
        for name in client_apis()
        if not re.search(rf"\b{name}\b", said)
        and not (name in served and re.search(rf"\b({name}|{snake(name)})\b", scripts))
    )
    assert not silent, f"neither docs/not-supported.md nor a conformance test names {silent}"


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


# ---- what the docs say exists


LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
MAKE_COMMAND = re.compile(r"(?:`|^|\$ )make ([a-z-]+(?: [a-z-]+)*)(?:`| |$)", re.M)
HEADRACE_COMMAND = re.compile(r"(?:`|^|\| |/)headrace ([a-z][a-z-]*)", re.M)


def test_links_lead_somewhere() -> None:
    dead = [
        f"{document.relative_to(PROJECT)}: {target}"
        for document in DOCUMENTS
        for target in LINK.findall(document.read_text("utf-8"))
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert not dead


def test_commands_in_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text("utf-8"), re.M))
    unknown = [
        f"{document.relative_to(PROJECT)}: {name}"
        for document in DOCUMENTS
        for name in unknown_commands(document.read_text("utf-8"), targets)
    ]
    assert not unknown


PATH_IN_CODE = re.compile(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`")
HOP = re.compile(r"`([\w/]+\.py): ([\w.]+)`")


def test_places_that_the_howto_names_exist() -> None:
    text = (PROJECT / "docs" / "howto" / "README.md").read_text("utf-8")
    named = PATH_IN_CODE.findall(text)
    assert len(named) > 60, "the pattern no longer fits the page"
    assert not [name for name in named if not (PROJECT / name).exists()]


def test_every_hop_of_a_walk_exists() -> None:
    """In docs/architecture.md a hop is `file: function` or `file: Class.method`."""
    hops = HOP.findall((PROJECT / "docs" / "architecture.md").read_text("utf-8"))
    assert len(hops) > 50, "the pattern no longer fits the page"
    missing = [f"{name}: {function}" for name, function in hops if not is_in(name, function)]
    assert not missing


def is_in(name: str, function: str) -> bool:
    path = PACKAGE / name
    return path.is_file() and function in definitions(ast.parse(path.read_text("utf-8")).body)


def definitions(body: list[ast.stmt], owner: str = "") -> set[str]:
    """Functions, classes and methods by name, `Class.method` for the latter."""
    found = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(owner + node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {owner + node.name} | definitions(node.body, f"{owner}{node.name}.")
    return found


def unknown_commands(text: str, targets: set[str]) -> list[str]:
    made = {f"make {word}" for words in MAKE_COMMAND.findall(text) for word in words.split()}
    typed = {f"headrace {command}" for command in HEADRACE_COMMAND.findall(text)}
    known = {f"make {target}" for target in targets} | {f"headrace {name}" for name in COMMANDS}
    return sorted((made | typed) - known)


# ---- what others wrote cannot reach a terminal

# Only `cli/output.py` writes: it escapes. `main.py` shows usage and help, which are our own words.
WRITES = re.compile(
    r"typer\.(echo|secho|confirm|prompt|style)\(|\bprint\(|sys\.(stdout|stderr)\.(buffer\.)?write"
)
MAY_WRITE = ("output.py", "main.py", "start.py")


def test_commands_speak_through_output() -> None:
    for path in (PACKAGE / "cli").rglob("*.py"):
        found = WRITES.search(path.read_text("utf-8"))
        assert found is None or path.name in MAY_WRITE, f"{path}: {found}"


def test_processes_log_in_lines_that_nobody_can_forge() -> None:
    for path in MODULES:
        found = re.search(r"logging\.(basicConfig|Formatter)\(", path.read_text("utf-8"))
        assert found is None or path.name == "log_lines.py", f"{path}: {found}"


# ---- a clone stands alone

# Addresses of package registries (each tool's own settings name them) and somebody's home folder.
NOT_OURS = re.compile(r"(index-url|find-links)[ =]|https?://\S+/(simple|maven2)/|/home/")
TEXT_FILES = (
    "py",
    "md",
    "toml",
    "txt",
    "in",
    "yaml",
    "yml",
    "json",
    "js",
    "go",
    "java",
    "xml",
    "mod",
)


def project_files() -> list[Path]:
    said = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True)
    return [PROJECT / name for name in said.stdout.splitlines()]


def test_no_file_names_a_registry_or_a_place_on_one_machine() -> None:
    for path in project_files():
        if path.suffix[1:] in TEXT_FILES and path.is_file() and path != Path(__file__).resolve():
            found = NOT_OURS.search(path.read_text("utf-8"))
            assert not found, f"{path}: {found}"


# ---- locks


def locked(name: str) -> dict[str, str]:
    text = (PROJECT / "requirements" / f"{name}.txt").read_text("utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\$", text, re.M))


@pytest.mark.parametrize("name", ["run", "dev", "docs"])
def test_a_lock_has_versions_and_hashes_and_no_address(name: str) -> None:
    text = (PROJECT / "requirements" / f"{name}.txt").read_text("utf-8")
    for block in re.split(r"\n(?=[a-z])", text.strip()):
        assert re.match(r"[a-z0-9-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", block), block[:80]
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
    assert "--trusted" not in text


def test_both_locks_agree() -> None:
    run, dev = locked("run"), locked("dev")
    assert run
    assert run.items() <= dev.items()


def test_the_lock_of_the_docs_changes_nothing_of_the_other_in_the_same_environment() -> None:
    docs, dev = locked("docs"), locked("dev")
    assert docs
    assert not [name for name in docs.keys() & dev.keys() if docs[name] != dev[name]]


def test_the_core_dependencies_are_locked() -> None:
    import tomllib

    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    assert wanted <= locked("run").keys()
    assert project["version"] == import_module("headrace").__version__


def test_no_page_installs_headrace_from_an_index() -> None:
    """There is none that has it: a page names the checkout or a wheel."""
    claim = re.compile(r"""(pip|pipx|uv tool) install[^`\n]*[ '"]headrace(\[|['"`\s]|$)""", re.M)
    pages = [
        *PROJECT.glob("*.md"),
        *PROJECT.glob("docs/**/*.md"),
        *PROJECT.glob("examples/**/*.md"),
    ]
    pages += PROJECT.glob("src/headrace/**/*.py")
    found = [str(page.relative_to(PROJECT)) for page in pages if claim.search(page.read_text())]
    assert found == []
