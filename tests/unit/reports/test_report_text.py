import json

import pytest

from reports.render import script_json
from reports.text import MAX_TEXT, clean, clean_tree, harmless, listing, markdown_text, moment, number, signed


def test_control_and_bidi_characters_are_shown_by_their_code_point() -> None:
    assert clean("a\x00b\x1b[31m\u202ec\u2066") == "a<U+0000>b<U+001B>[31m<U+202E>c<U+2066>"


def test_a_lone_surrogate_can_be_encoded_afterwards() -> None:
    assert clean("a\ud800b").encode() == b"a<U+D800>b"


def test_line_breaks_become_spaces() -> None:
    assert clean("one\ntwo\u2028three") == "one two<U+2028>three"


def test_emoji_with_joiners_and_hebrew_are_kept() -> None:
    assert clean("👩‍💻 שלום") == "👩‍💻 שלום"


def test_long_text_is_cut_and_says_so_but_only_where_it_is_asked_to_be() -> None:
    text = "x" * (MAX_TEXT + 1)
    assert clean(text) == "x" * MAX_TEXT + f"… ({MAX_TEXT + 1} characters)"
    assert harmless(text) == text


def test_cleaning_twice_changes_nothing() -> None:
    once = clean("a\u202eb")
    assert clean(once) == once


def test_a_tree_is_cleaned_with_its_keys_and_holds_no_number_that_json_does_not_know() -> None:
    assert clean_tree({"a\x00": [float("nan"), 1.5, "\u202e"]}) == {"a<U+0000>": [None, 1.5, "<U+202E>"]}


@pytest.mark.parametrize("text", ["<b>", "a|b", "`x`", "*x*", "[a](b)", "a\nb", "https://x"])
def test_markdown_gives_no_character_of_the_text_a_meaning(text: str) -> None:
    shown = markdown_text(text)
    assert not set("<|`*[\n") & set(shown)
    assert "://" not in shown


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "ms", "0.0"),
        (12.34, "ms", "12.3"),
        (-0.04, "°C", "−0.040"),
        (-0.0, "ms", "0.0"),
        (0.00123, "", "0.0012"),
        (0.00002, "nats", "2.0e−05"),
        (9999.0, "count", "9999"),
        (1771200.0, "count", "1\u202f771\u202f200"),
        (float("inf"), "ppl", "∞"),
        (float("nan"), "ppl", "not a number"),
    ],
)
def test_numbers_are_shown_with_the_digits_that_their_unit_needs(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


def test_a_gain_has_a_plus_sign() -> None:
    assert [signed(1.0, "dB"), signed(-1.0, "dB"), signed(0.0, "dB")] == ["+1.0", "−1.0", "0.0"]


def test_what_a_listing_leaves_out_is_counted() -> None:
    assert listing(["a", "b", "c", "d"], limit=2) == "a, b and 2 more"


def test_a_utc_stamp_is_made_readable_and_another_one_is_left() -> None:
    assert moment("2026-03-01T08:00:00.123+00:00") == "2026-03-01 08:00:00 UTC"
    assert moment("2026-03-01T08:00:00+02:00") == "2026-03-01T08:00:00+02:00"


def test_no_string_can_end_the_script_block_it_is_embedded_in() -> None:
    text = "</script><!--&\u2028"
    block = str(script_json({"a": text}))
    assert not set("<>&\u2028") & set(block)
    assert json.loads(block) == {"a": text}
