"""Lines of a TOML text: every header and key is found, whatever stands around it."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from streaming.policy.lines import line_numbers, line_of

TEXT = '''# first
version = 1   # [not.a.header]
a.b."c d" = 2
text = """
[[rule]]
x = "1" \\"""" ""
"""
more = [
  [24.9, 60.1], # ]
  { x = 1 },
]

[groups."the [best] = 'one'"]
users = ["]", '[', """
three"""]

[[rule]]
level = 'none'

[ rule . categories ]
health = "none"

[[rule]]
[[rule.part]]
y = 1
[[rule.part]]
y = 2
[rule.part.deep]
z = 3
'''


def test_headers_and_keys_are_found_between_strings_arrays_and_comments() -> None:
    text = TEXT.replace('x = "1" \\"""" ""\n', 'x = "1"\n')
    tomllib.loads(text)
    assert line_numbers(text) == {
        ("version",): 2,
        ("a", "b", "c d"): 3,
        ("text",): 4,
        ("more",): 8,
        ("groups", "the [best] = 'one'"): 13,
        ("groups", "the [best] = 'one'", "users"): 14,
        ("rule", 0): 17,
        ("rule", 0, "level"): 18,
        ("rule", 0, "categories"): 20,
        ("rule", 0, "categories", "health"): 21,
        ("rule", 1): 23,
        ("rule", 1, "part", 0): 24,
        ("rule", 1, "part", 0, "y"): 25,
        ("rule", 1, "part", 1): 26,
        ("rule", 1, "part", 1, "y"): 27,
        ("rule", 1, "part", 1, "deep"): 28,
        ("rule", 1, "part", 1, "deep", "z"): 29,
    }


def test_quotes_at_the_end_of_a_long_string_belong_to_it() -> None:
    text = 'a = """x""""\nb = \'\'\'y\'\'\'\'\'\nc = """z\\""""\nd = ""\ne = 1\r\nf = 2\n'
    tomllib.loads(text)
    assert line_numbers(text) == {("a",): 1, ("b",): 2, ("c",): 3, ("d",): 4, ("e",): 5, ("f",): 6}


def test_an_entry_without_a_line_has_that_of_what_holds_it() -> None:
    lines = line_numbers("[zones.a]\nbox = { south = 1 }\n")
    assert line_of(lines, ("zones", "a", 0, "box", "south")) == 2
    assert line_of(lines, ("zones", "a", 0, "circle")) == 1
    assert line_of(lines, ("zones", "a", "box", "south")) == 2
    assert line_of(lines, ("rule", 0)) is None
    assert line_of(lines, ()) is None


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8), unique=True, max_size=6))
def test_any_quoted_key_is_found(keys: list[str]) -> None:
    quoted = ['"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"' for key in keys]
    text = "".join(f"[table.{key}]\n{key} = 1\n\n" for key in quoted)
    tomllib.loads(text)
    lines = line_numbers(text)
    for i, key in enumerate(keys):
        assert lines["table", key] == 3 * i + 1
        assert lines["table", key, key] == 3 * i + 2
