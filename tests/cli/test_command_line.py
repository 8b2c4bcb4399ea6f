"""The command line: what is wrong is said in one line, with exit code 2, before anything was started."""

import shutil
import subprocess
import sys

import pytest
import typer

from elasticfsm.cli import COMMANDS, app, main
from elasticfsm.errors import RequestRefused
from elasticfsm.runtime.models import PSALTER
from elasticfsm.steps import SPEC


@pytest.fixture
def refused(monkeypatch, capfd):
    """Run the command line in this process, expect exit code 2 and return what it said, in one line."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["elasticfsm", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr().err
        assert ended.value.code == 2, said
        assert "Traceback" not in said
        return said

    return run


def test_python_dash_m_runs_the_same_command_line():
    command = [sys.executable, "-m", "elasticfsm", "compile", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("name", ["soak", "rescales"])
def test_a_bench_whose_seed_is_drawn_starts_without_one(refused, tmp_path, name):
    blocked = tmp_path / "none" / "x.json"
    assert "no such directory" in refused("bench", name, "--json", str(blocked))


def test_files_of_something_else_and_places_that_cannot_be_are_named(refused, tmp_path):
    (tmp_path / "other.json").write_text("[1]\n")
    assert "other.json: " in refused("mutate", "serving", "--every", "100", "--json", str(tmp_path / "other.json"))
    assert "cannot be made" in refused("model", "new", "/proc/none")
    assert "expected async or sync" in refused("bench", "rescales", "--eplb", "no")


def test_help_names_the_commands_and_needs_no_torch():
    code = "import sys\nsys.argv = ['elasticfsm', '--help']\nimport atexit\n"
    code += "atexit.register(lambda: print('TORCH' if 'torch' in sys.modules else 'LIGHT'))\n"
    code += "from elasticfsm.cli import main\nmain()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.rstrip().endswith("LIGHT")
    assert "demo" in done.stdout


def test_every_command_is_named_after_a_module():
    assert all(name.isidentifier() for name in COMMANDS.values())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("0", "size 0 is not a number of engines"),
        ("2,9", "larger than allowed"),
        ("2,x", "expected numbers of engines"),
        ("2,,4", "expected numbers of engines"),
        ("-1", "is not a number of engines"),
    ],
)
def test_an_impossible_path_is_refused(refused, path, said):
    assert said in refused("demo", "--path", path)


def test_a_size_with_too_few_slots_is_refused_with_the_sizes_that_are_possible(refused):
    text = refused("demo", "--path", "4,2", "--slots", "4")
    assert "2 x 4 slots = 8 for 16 experts" in text
    assert "valid sizes: 4 to 8" in text


def test_a_missing_model_directory_is_refused(refused, tmp_path):
    assert "does not exist" in refused("demo", "--model", str(tmp_path / "nowhere"))


def test_a_model_directory_without_config_is_refused(refused, tmp_path):
    assert "config.json does not exist" in refused("demo", "--model", str(tmp_path))


def test_a_truncated_model_file_is_refused(refused, tmp_path):
    shutil.copy(PSALTER / "config.json", tmp_path)
    whole = (PSALTER / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "truncated or corrupt" in refused("demo", "--model", str(tmp_path))


def test_a_report_that_cannot_be_written_is_refused_before_the_run(refused, tmp_path):
    assert "no such directory" in refused("demo", "--json", str(tmp_path / "nowhere" / "report.json"))


@pytest.mark.parametrize("option", [("--transfer", "pigeon"), ("--break", "everything"), ("--seconds", "-1")])
def test_an_option_out_of_range_is_refused(refused, option):
    refused("demo", *option)


def test_an_engine_that_would_join_beyond_this_machine_is_refused(refused):
    text = refused("engine", "--join", "tcp://10.0.0.1:5555", "--operation", "op", "--engine-id", "e0")
    assert "not authenticated" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "serving", "--sizes", "999999999"], "64 engines at most"),
        (["check", "scale_up", "--sizes", "\u00b2+1"], "does not fit scale_up"),
        (["check", "scale_up", "--faulty"], "--faulty is about patches"),
        (["mutate", "serving", "--sizes", "7+7+7"], "does not fit serving"),
    ],
)
def test_what_a_command_would_pass_over_is_refused(refused, arguments, said):
    assert said in refused(*arguments)


def test_a_spec_with_an_unknown_step_is_refused(refused, tmp_path):
    text = (SPEC / "serving.yaml").read_text()
    broken = tmp_path / "serving.yaml"
    broken.write_text(text.replace("step.forward", "step.backward"))
    assert "unknown step `step.backward`" in refused("compile", str(broken))


def test_an_unknown_command_and_an_unknown_protocol_are_refused(refused):
    refused("dance")
    assert "no such file" in refused("compile", "scale_sideways")


def test_a_new_model_can_be_read_and_an_occupied_directory_is_left_alone(refused, monkeypatch, tmp_path, capfd):
    made = tmp_path / "random"
    monkeypatch.setattr(sys, "argv", ["elasticfsm", "model", "new", str(made), "--layers", "1", "--experts", "4"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "1 layers, 4 experts" in capfd.readouterr().out
    before = sorted((path.name, path.stat().st_mtime_ns) for path in made.iterdir())
    assert "already holds something" in refused("model", "new", str(made))
    assert "exceeds num_experts" in refused("model", "new", str(tmp_path / "no"), "--experts-per-token", "99")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in made.iterdir()) == before
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize("path", ["4,2", "2", "2,x,4", "0,0"])
def test_a_path_without_growth_is_no_growth_to_measure(refused, path):
    assert "expected a smaller and a larger size" in refused("bench", "growth", "--path", path)


@pytest.mark.parametrize(
    "command",
    [
        ("demo", "--json"),
        ("plan", "--from", "2", "--to", "4", "--json"),
        ("check", "--json"),
        ("compile", "scale_up", "--out"),
        ("export", "promela", "scale_up", "--out"),
        ("schema", "--out"),
        *(("bench", name, "--json") for name in ("eplb", "transfer", "rescales", "step", "growth")),
        *(("bench", name, "--out") for name in ("gpu", "switch", "transfer-gpu", "eplb-gpu", "throughput")),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_any_work(refused, tmp_path, command):
    assert "no such directory" in refused(*command, str(tmp_path / "nowhere" / "out.json"))
    assert "this is a directory" in refused(*command, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("demo", "--journal"), ("draw", "--out")])
def test_a_directory_that_cannot_be_made_is_refused(refused, command):
    assert "/dev/null is a file" in refused(*command, "/dev/null/out")


def test_journals_of_two_runs_are_never_mixed(refused, tmp_path):
    old = tmp_path / "e0.jsonl"
    old.write_text("old\n")
    said = refused("demo", "--journal", str(tmp_path))
    assert "give a new or an empty directory" in said and said.count("\n") == 1
    assert old.read_text() == "old\n"


def test_an_interrupted_command_says_so_once_and_returns_130(monkeypatch, capfd, tmp_path):
    def interrupted(directory):
        raise KeyboardInterrupt

    monkeypatch.setattr("elasticfsm.explain.explain", interrupted)
    monkeypatch.setattr(sys, "argv", ["elasticfsm", "explain", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capfd.readouterr().err) == (130, "elasticfsm: interrupted\n")


def _leaves(command, path):
    """Every command that is no group, with its name; groups import theirs when they are asked."""
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    for name in command.list_commands(None):
        yield from _leaves(command.get_command(None, name), (*path, name))


def test_no_number_that_is_infinite_or_none_is_taken_by_any_option(refused):
    looked = 0
    for _, command in _leaves(typer.main.get_command(app), ()):
        for option in command.params:
            if isinstance(option.default, float):
                looked += 1
                with pytest.raises(RequestRefused, match=f"{option.opts[0]} is (nan|inf); expected a finite number"):
                    command.callback(**{option.name: float(("nan", "inf")[looked % 2])})
    assert looked > 10
    assert "--grace is inf" in refused("serve", "--grace", "inf")
    assert "'--timescale'" in refused("bench", "soak", "--timescale", "nan")


def test_ctrl_c_while_the_command_line_is_imported_says_so_once():
    code = "import sys\nclass Early:\n    def find_spec(self, name, *_):\n        if name == 'typer':\n"
    code += "            raise KeyboardInterrupt\nsys.meta_path.insert(0, Early())\n"
    code += "from elasticfsm.__main__ import main\nmain()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "elasticfsm: interrupted\n")


def test_the_default_of_every_option_is_within_its_own_limits():
    looked = 0
    for path, command in _leaves(typer.main.get_command(app), ()):
        for option in command.params:
            default = option.default
            if getattr(option, "min", None) is None or not isinstance(default, int | float):
                continue
            looked += 1
            assert option.min <= default, f"{' '.join(path)} {option.opts}: {default} is below {option.min}"
    assert looked > 10
