"""Every command that a document shows exists, with every option that it names; every file that it links is there."""

import re
from pathlib import Path

import click
import pytest
import typer

from elasticfsm.cli import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(path):
    for block in re.findall(r"`([^`\n]+)`|^    (.+)$", path.read_text(), re.MULTILINE):
        text = next(part for part in block if part)
        for found in re.finditer(r"(?:^|[\s;/])elasticfsm ([a-z][^;#]*)", text):
            yield found[1].split()


def resolved(words):
    command, context = typer.main.get_command(app), click.Context(click.Command("elasticfsm"))
    while words and hasattr(command, "get_command"):
        name = words.pop(0)
        names = name.split("|")
        inner = [command.get_command(context, each) for each in names]
        assert all(inner), f"no command {name}"
        command = inner[0]
    return command


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_in_a_document_exists_with_its_options(path):
    for words in commands(path):
        command = resolved(words)
        known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        for word in words:
            option = word.strip("[](),.").partition("=")[0]
            if option.startswith("--"):
                assert option in known | {"--help"}, f"{command.name} has no {option}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_links_is_there(path):
    for target in re.findall(r"\]\(([^)#]+)\)|src=\"([^\"]+)\"", path.read_text()):
        name = target[0] or target[1]
        if "://" not in name:
            assert (path.parent / name).exists(), name
