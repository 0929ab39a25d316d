"""TOML, changed where it has to be and nowhere else."""

import pytest

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.features.editing import toml

PATH = ("servers", "mine")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[servers.mine]\nurl = "x"\n'),
        ("a = 1", 'a = 1\n\n[servers.mine]\nurl = "x"\n'),
        ("a = 1\n\n", 'a = 1\n\n[servers.mine]\nurl = "x"\n'),
        ("a = 1\r\n", 'a = 1\r\n\r\n[servers.mine]\r\nurl = "x"\r\n'),
        ("[servers.mine] # here\n\n[b]\n", '[servers.mine] # here\nurl = "x"\n\n[b]\n'),
        ("[servers.mine]\non = true", '[servers.mine]\non = true\nurl = "x"\n'),
        ("[servers.mine]\nurl='''\na'''  # old\n", '[servers.mine]\nurl= "x"  # old\n'),
        (
            '[servers.mine]\n"url" = "#" # old\n[servers.mine.env]\nA = 1\n',
            '[servers.mine]\n"url" = "x" # old\n[servers.mine.env]\nA = 1\n',
        ),
        ('s = """\n[servers.mine]\n"""\n', 's = """\n[servers.mine]\n"""\n\n[servers.mine]\nurl = "x"\n'),
    ],
)
def test_a_table_is_put_where_it_belongs(before: str, after: str):
    assert toml.merge(before, PATH, {"url": "x"}) == after


def test_keys_of_another_transport_are_dropped_with_their_tables():
    before = (
        '[servers.mine]\ncommand = "x"\nargs = [\n  "a", # one\n]\non = true\n\n[servers.mine.env]\nA = "1"\n\n[b]\n'
    )

    assert toml.merge(before, PATH, {"url": "x"}, ("command", "args", "env")) == (
        '[servers.mine]\non = true\nurl = "x"\n\n[b]\n'
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('a = 1\n\n[servers.mine]\nurl = "x"\n', "a = 1\n"),
        ('[servers.mine]\nurl = "x"\n\n[b]\nc = 1\n', "\n[b]\nc = 1\n"),
        ('a = 1\n\n[servers.mine]\nurl = "x"\n# mine\n\n[b]\n', "a = 1\n\n# mine\n\n[b]\n"),
        ('[servers]\nother.url = "y"\nmine.url = "x"\n', '[servers]\nother.url = "y"\n'),
        ("a = 1\n", "a = 1\n"),
    ],
)
def test_a_table_is_removed_and_comments_stay(before: str, after: str):
    assert toml.remove(before, PATH) == after


@pytest.mark.parametrize("text", ["a = ", "[a", 'a = "\n', "a = 1\na = 2\n", "\ufeffa = 1"])
def test_what_is_not_toml_is_refused(text: str):
    with pytest.raises(FileRefused):
        toml.load(toml.merge(text, PATH, {"url": "x"}))


@pytest.mark.parametrize("text", ["servers.mine.on = true\n", "[servers]\nmine = { on = true }\n"])
def test_an_entry_without_a_header_is_refused(text: str):
    with pytest.raises(FileRefused, match=r"write it as \[servers.mine\]"):
        toml.merge(text, PATH, {"url": "x"})
